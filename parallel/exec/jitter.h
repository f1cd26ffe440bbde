// What spreads step times that a model makes equal: GPUs that are slower than others for good,
// operations that take longer now and then, rare stalls. Seeded Monte-Carlo lanes go through the
// folded walk together.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/exec/virtual_time.h"
#include "parallel/plan/unlike.h"

namespace mb {

// Sorted draws of the step time.
struct StepSpread {
  std::vector<double> steps_s;
  double mean_s() const;
  double quantile_s(double share) const;
};

inline constexpr int kJitterLanes = 128;

// A lane of a class stands for its slowest GPU, so each class draws the largest of as many normal
// numbers as it has ranks. Noise of single computations averages out on the way: one member of each
// group is followed, and where a group meets, the latest of the others is drawn from the noise that
// has added up since they last met. Collectives themselves do not spread. The same by seed, bit for
// bit; without jitter all draws are timeline_of's step.
StepSpread spread_of_step(const Plan& plan, const RankClasses& classes, const StepCosts& costs,
                          const Jitter& jitter, std::uint64_t seed, int lanes = kJitterLanes);

// Draws of the largest of `n` standard normal numbers, by quantiles of equal probability.
class LargestOf {
 public:
  explicit LargestOf(int n);
  static constexpr int kBits = 12;
  double at(std::uint32_t bits) const { return values_[bits & ((1u << kBits) - 1)]; }
  double mean() const { return mean_; }
  double variance() const { return variance_; }

 private:
  std::vector<double> values_;
  double mean_ = 0, variance_ = 0;
};

}  // namespace mb
