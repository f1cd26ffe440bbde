// plan_step: the one place where model, mesh, schedule and strategies meet.
#pragma once

#include "parallel/mesh/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

// Throws Error naming the rule that model, mesh and options break together, and what would do: what
// does not divide over an axis, what a schedule does not take, what a range leaves empty.
void check_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options);

// One training step: forward and backward of every micro-batch in the order of the schedule,
// gradients reduced over data ranks in buckets as soon as a backward has finished them (the last
// one; with ZeRO-2 and 3 each), then the step's sums over the world, then the optimizer. Calls
// check_step. Programs are built in parallel.
Plan plan_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options);

}  // namespace mb
