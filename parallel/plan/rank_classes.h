// Which ranks virtual time cannot tell apart. Ranks of a class run the same Program, meet the same
// classes and take as long, so that one lane stands for all of them, whatever the mesh.
#pragma once

#include <span>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/plan/unlike.h"

namespace mb {

// So many ranks of a class, in one group.
struct ClassShare {
  int of = 0;
  int ranks = 1;
};

// How a class takes part in groups of one kind.
struct ClassGroup {
  std::vector<ClassShare> shares;  // ascending by class; empty: its ranks belong to none
  double slower = 1;               // by its slowest NIC
};

class RankClasses {
 public:
  struct Class {
    int stage = 0;
    int first_rank = 0;
    int ranks = 1;
    double slower = 1;                    // computation
    std::vector<int> peers;               // by stage: the class of its pipeline's rank there
    std::vector<double> messages_slower;  // by stage: what they exchange; empty: not at all
    std::vector<ClassGroup> groups;       // by index into groups()
  };

  // All ranks of a stage: what there is without an imbalance.
  static RankClasses by_stage(const Plan& plan);
  // The coarsest that virtual time cannot tell apart: colours of ranks, refined by the colours of
  // those they meet until none differ (1-dimensional Weisfeiler-Leman).
  static RankClasses folded(const Plan& plan, const Imbalance& imbalance);
  // Every rank its own.
  static RankClasses unfolded(const Plan& plan, const Imbalance& imbalance);

  int count() const { return static_cast<int>(classes_.size()); }
  const Class& at(int index) const { return classes_[index]; }
  // Groups that collectives of the Plan span, each once.
  const std::vector<Group>& groups() const { return groups_; }
  int index_of(Group group) const;
  // The class of each rank.
  const std::vector<int>& of_rank() const { return of_rank_; }

 private:
  RankClasses() = default;
  static RankClasses of_colours(const Plan& plan, const Imbalance& imbalance,
                                std::vector<int> of_rank);

  std::vector<Class> classes_;
  std::vector<Group> groups_;
  std::vector<int> of_rank_;
};

}  // namespace mb
