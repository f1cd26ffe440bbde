// Flows that share links, on a clock of the caller's: each has what max-min fairness gives it.
#pragma once

#include <map>
#include <optional>
#include <vector>

namespace mb {

// How much of a link a flow takes while nobody else is there, in (0, 1].
struct LinkUse {
  int link = 0;
  double share = 1;
};

// Times only go on from call to call.
class LinkFlows {
 public:
  // A flow that takes so long if it has its links to itself. Returns its number.
  int start(double now_s, double seconds, std::vector<LinkUse> uses);
  // When it ends if none starts before, or has ended.
  double end_of(int flow) const;
  void forget(double now_s, int flow);  // that has ended

 private:
  struct Flow {
    double left_s = 0;  // of its seconds
    double speed = 1;   // of those, in a second
    std::vector<LinkUse> uses;
  };
  double end_of(const Flow& flow) const {  // if all speeds stay
    return now_s_ + flow.left_s / flow.speed;
  }
  std::optional<double> next_end() const;
  void advance(double now_s);
  void move_to(double now_s);  // before which none ends
  // All speeds grow alike until a link of theirs is full (Bertsekas and Gallager, Data Networks,
  // 2nd ed., 1992, section 6.5.2).
  void share_links();

  double now_s_ = 0;
  int started_ = 0;
  std::map<int, Flow> running_;
  std::map<int, double> ended_;
};

}  // namespace mb
