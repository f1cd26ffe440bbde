// Virtual time in which what runs beside each other slows each other: every instruction has so much
// work left, and a rate that changes whenever something beside it starts or ends.
#pragma once

#include "parallel/exec/virtual_time.h"

namespace mb {

// As timeline_of, by StepCosts::interference. While collectives are on their way, a computation of
// a rank in them has the SMs that they leave, or the memory bandwidth where that bounds it; a
// collective is slower while one of its ranks computes. Times are rounded up to whole nanoseconds.
Timeline fluid_timeline(const Plan& plan, const RankClasses& classes, const StepCosts& costs);

}  // namespace mb
