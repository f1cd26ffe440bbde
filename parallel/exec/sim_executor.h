// Virtual time: the Plan walked over a cost model. Exact and repeatable.
#pragma once

#include "parallel/cost/cost.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/rank_classes.h"

namespace mb {

// One step in virtual time from 0, one lane for all ranks that are alike: without an imbalance a
// pipeline stage. Throws Error if the plan deadlocks.
Timeline simulate(const Plan& plan, const CostModel& cost, const Imbalance& imbalance = {});
// The same with a lane for every rank: some times slower, and no different by a bit.
Timeline simulate_each_rank(const Plan& plan, const CostModel& cost,
                            const Imbalance& imbalance = {});

// The step that `measured` would have been with a core for every rank: each compute instruction
// takes its CPU time (the mean over the ranks of its stage), communication takes no time of its
// own. What is left is the schedule: its bubble can be compared with theory on a machine that has
// fewer cores than ranks. Throws Error if there are no CPU times.
Timeline replay_on_own_cores(const Plan& plan, const StepResult& measured);

// simulate() as an Executor; keeps references.
std::unique_ptr<Executor> make_sim_executor(const Plan& plan, const CostModel& cost);

}  // namespace mb
