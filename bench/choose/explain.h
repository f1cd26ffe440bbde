// Why a case is the best, and how sure that is: where its time goes, what more of each part of the
// machine would give, what rules of thumb would have cost.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/placement.h"
#include "bench/choose/search.h"

namespace mb {

// Where a step's time goes, in seconds of the mean rank; parts add up to the step. Names are those
// of breakdown.h, both halves of an axis' exposed communication together: "compute", "optimizer",
// "exposed tp", "memory", "bubble" (idle in the pipeline), "idle".
struct TimePart {
  std::string name;
  double seconds = 0;
};
struct Anatomy {
  std::vector<TimePart> parts;      // largest first
  double host_s = 0;                // by how much a host that launches at once would shorten it
  std::vector<AxisPlacement> axes;  // links and bytes of all ranks in a step
};
Anatomy anatomy_of(const Question& question, const Mesh& mesh, const StepOptions& options);

// Probability that the first is faster, where both err as the rows of their stack do. How errors of
// two cases of one model, machine and batch go together was measured on 3,008 pairs of rows in
// results/published/rows.csv: by 0.48 on the same mesh, by 0.04 on another.
inline constexpr double kSharedOnOneMesh = 0.48, kSharedElsewhere = 0.04;
double probability_faster(double a_s, double b_s, double log_sigma, bool same_mesh);

// One change of the machine, and the step with it.
struct Change {
  std::string what;  // "10 % more NIC bandwidth"
  std::optional<double> step_s;
  std::string reason;  // where there is none, or how it was got
};
std::vector<Change> changes_of(const Question& question, const Mesh& mesh,
                               const StepOptions& options, double step_s);

// What a rule of thumb would have had: the fastest case that follows it, as far as estimates tell,
// simulated; none where none of them fits.
struct RuleResult {
  std::string name;
  std::optional<Simulated> best;
};
std::vector<RuleResult> follow_rules(const Space& space, const SearchResult& result);

// "rank 5=+n0 slot=3" for every rank of a program whose axes have their usual order, so that its
// ranks lie as `mesh` has them: Open MPI's rank file, in which +n0 is the first host.
std::string rank_file(const Mesh& mesh);

}  // namespace mb
