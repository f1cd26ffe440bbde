// plan_step: the one place where model, mesh, schedule and strategies meet.
#pragma once

#include "parallel/mesh/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

// Throws Error naming the rule and the nearest legal values unless heads, ffn and kv heads divide
// by tp and layers by pp, and the counts are positive.
void check_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options);

// One training step: forward and backward of every micro-batch in the order of the schedule,
// gradients reduced over dp in buckets as soon as the last backward has finished them, then the
// step's scalars over the world, then the optimizer. Calls check_step. Programs are built in
// parallel.
Plan plan_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options);

}  // namespace mb
