// What makes ranks of a stage unlike each other, and steps unlike steps.
#pragma once

#include <map>

namespace mb {

// By how many times longer something takes.
struct Imbalance {
  std::map<int, double> ranks;  // computation of a rank
  std::map<int, double> nics;   // collectives and messages between nodes, by node at either end
  bool empty() const { return ranks.empty() && nics.empty(); }
  bool operator==(const Imbalance&) const = default;
};

struct Jitter {
  double gpu = 0;  // standard deviation of a GPU's speed, as a share; it keeps it for the step
  double op = 0;   // the same of the time of each computation
  double stalls_per_gpu_hour = 0;
  double stall_s = 0;
  bool none() const { return gpu == 0 && op == 0 && (stalls_per_gpu_hour == 0 || stall_s == 0); }
  bool operator==(const Jitter&) const = default;
};

}  // namespace mb
