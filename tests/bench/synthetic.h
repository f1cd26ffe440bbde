// Plans and timelines with known times: real plans of a small model whose micro-batches take round
// numbers in virtual time, and plans written by hand, one instruction after another.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/analysis/step_shape.h"
#include "parallel/exec/virtual_time.h"
#include "parallel/plan/plan.h"
#include "parallel/strategy/step.h"
#include "parallel/timeline/timeline.h"

namespace mb {

inline ModelConfig small_model(int layers, bool tied = true) {
  return {.name = "small",
          .layers = layers,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 2,
          .ffn = 32,
          .vocabulary = 10,
          .sequence = 4,
          .tied = tied,
          .vocabulary_multiple = 4};
}

inline StepShape small_shape(const std::string& mesh, const std::string& schedule,
                             int micro_batches, int layers_per_stage = 1) {
  StepShape shape{.mesh = Mesh::parse(mesh)};
  shape.model = small_model(layers_per_stage * shape.mesh.size(Axis::pp));
  shape.options = {
      .schedule = schedule, .micro_batch = 2, .micro_batches = micro_batches, .bucket_bytes = 2048};
  return shape;
}

// One lane a stage, whose ranks share its program; duration(stage, id) in nanoseconds.
template <class Duration>
Timeline virtual_timeline(const Plan& plan, Duration duration) {
  StepCosts costs;
  for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage) {
    auto& durations = costs.duration_ns.emplace_back();
    for (std::size_t id = 0; id < plan.programs[stage].instructions.size(); ++id)
      durations.push_back(duration(stage, static_cast<InstructionId>(id)));
  }
  return timeline_of(plan, RankClasses::by_stage(plan), costs);
}

// Every micro-batch takes `forward_ns` and `backward_ns` on every stage, all in its first
// computation, and nothing else takes time.
inline Timeline balanced_timeline(const Plan& plan, std::int64_t forward_ns,
                                  std::int64_t backward_ns) {
  std::vector<std::vector<std::int64_t>> cost;
  for (const Program& program : plan.programs) {
    std::vector<bool> begun(plan.mesh.size(Axis::pp) + 2 * program.slots.size());
    std::vector<std::int64_t>& costs = cost.emplace_back(program.instructions.size());
    for (std::size_t id = 0; id < costs.size(); ++id) {
      const Instruction& i = program.instructions[id];
      const bool forward = i.label.pass == Pass::forward;
      if (!std::holds_alternative<Compute>(i.action)) continue;
      if (!forward && i.label.pass != Pass::backward) continue;
      const std::size_t slot = 2 * i.label.micro_batch + forward;
      if (!begun[slot]) costs[id] = forward ? forward_ns : backward_ns;
      begun[slot] = true;
    }
  }
  return virtual_timeline(plan, [&](int stage, InstructionId id) { return cost[stage][id]; });
}

// A rank's own copy of its lane, so that a test may move it alone.
inline Timeline one_lane_a_rank(const Timeline& shared) {
  Timeline own;
  for (std::size_t rank = 0; rank < shared.lane_of_rank.size(); ++rank) {
    own.lanes.push_back(shared.of(static_cast<int>(rank)));
    own.lane_of_rank.push_back(static_cast<int>(rank));
  }
  return own;
}

// Builds a plan by hand: every stage's instructions in order. All carry one tensor of 100 fp32
// elements.
class HandPlan {
 public:
  explicit HandPlan(const std::string& mesh) {
    plan.mesh = Mesh::parse(mesh);
    plan.names = {"site"};
    plan.ops = {{Matmul{.m = 2, .n = 3, .k = 5}}};
    for (int stage = 0; stage < plan.mesh.size(Axis::pp); ++stage) {
      Program program{.stage = stage};
      program.tensors = {{.bytes = 400, .elements = 100, .persistent = true}};
      program.operands = {0};
      plan.programs.push_back(std::move(program));
    }
  }

  InstructionId add(int stage, Action action, Stream stream, Label label = {}) {
    Program& program = plan.programs[stage];
    label.stage = static_cast<std::int16_t>(stage);
    program.instructions.push_back(
        {.action = action, .stream = stream, .label = label, .reads = {0, 1}, .writes = {0, 1}});
    return static_cast<InstructionId>(program.instructions.size()) - 1;
  }
  InstructionId compute(int stage, Pass pass = Pass::forward) {
    return add(stage, Compute{0}, Stream::compute, {.pass = pass});
  }
  InstructionId all_reduce(int stage, Group group, Stream stream) {
    return add(stage, Collective{CollectiveKind::all_reduce, ReduceOp::sum, group}, stream);
  }

  Plan plan;
};

}  // namespace mb
