// A step folded along time: what a class does between two meetings with others is a run; equal
// runs, of other layers, micro-batches and stages, are one type, and what a run does depends on
// nothing but the lags with which its inputs arrive. So each type is gone through once for each set
// of lags, and a step of a pipeline costs its slots instead of its instructions.
//
// For a Plan that is asked many times, and in which nothing slows what is beside it. Gives the
// step's time alone, to the nanosecond that of timeline_of.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/exec/virtual_time.h"

namespace mb {

class FoldedStep {
 public:
  // Goes over all instructions once. Keeps no reference. Throws Error if the plan deadlocks.
  FoldedStep(const Plan& plan, const RankClasses& classes, const StepCosts& costs);
  ~FoldedStep();

  // When the last instruction ends; the step begins at 0.
  std::int64_t end_ns();
  void forget();  // what was recorded

  struct Counts {
    std::int64_t instructions = 0, runs = 0, types = 0;
    std::int64_t recorded = 0;  // types for a set of lags, so far
  };
  Counts counts() const;

 private:
  struct Runs;
  class Builder;
  static std::unique_ptr<Runs> cut_into_runs(const Plan& plan, const RankClasses& classes,
                                             const StepCosts& costs);
  std::unique_ptr<Runs> runs_;
};

}  // namespace mb
