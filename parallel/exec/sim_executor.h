// Virtual time: the Plan walked over a cost model. Exact and repeatable.
#pragma once

#include "parallel/cost/cost.h"
#include "parallel/exec/executor.h"

namespace mb {

// One step in virtual time from 0, one lane a pipeline stage. Throws Error if the plan deadlocks.
Timeline simulate(const Plan& plan, const CostModel& cost);

// The same as an Executor; keeps references.
std::unique_ptr<Executor> make_sim_executor(const Plan& plan, const CostModel& cost);

}  // namespace mb
