// Closed forms of a training step: pipeline bubble and traffic. Each names its public source;
// memory is in memory_form.h.
//
// They know nothing of the Plan, so that plan and measurement can be held against them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

// The case that the closed forms are of.
struct StepShape {
  ModelConfig model;
  Mesh mesh;
  StepOptions options;

  int stages() const { return mesh.size(Axis::pp); }
  std::int64_t layers_of_stage() const { return model.layers / stages(); }
  // Elements of what passes between layers and stages: s b h.
  std::int64_t hidden_elements() const {
    return model.sequence * options.micro_batch * model.hidden;
  }
};

// Idle share of a pipeline of equal stages without communication time, for `schedule` gpipe or
// 1f1b; nullopt for any other. GPipe (Huang et al., 2019) divides by the total, (p-1) / (m+p-1);
// Megatron-LM (Narayanan et al., SC 2021, section 2.2) by the ideal, (p-1) / m.
struct BubbleShare {
  double of_window = 0, of_ideal = 0;
};
inline constexpr std::string_view kBubbleSource =
    "Narayanan et al., SC 2021, section 2.2: idle (p-1)(F+B) a stage";
std::optional<BubbleShare> bubble_share(std::string_view schedule, int stages, int micro_batches);

// The same by stage and phase (step_times.h), for one micro-batch's forward and backward time on
// each stage. 1F1B: s F + (p-1-s) B, 0, (p-1-s) F + s B, if there are at least p micro-batches.
// GPipe: (p-1) F + (p-1-s) B, 0, s B. Both sum to (p-1)(F+B). Derived from the schedules' order
// alone.
struct BubblePhases {
  double warm_up = 0, steady = 0, cool_down = 0;
  double sum() const { return warm_up + steady + cool_down; }
};
std::optional<BubblePhases> bubble_phases(std::string_view schedule, int stages, int micro_batches,
                                          int stage, double forward, double backward);

// What one rank of `stage` sends or reduces in a step, by axis. `calls` is nullopt where it depends
// on how gradients fill buckets.
struct Ledger {
  std::string axis, kind;
  std::optional<std::int64_t> calls;
  std::int64_t elements = 0, bytes = 0;
};
// tp: all-reduces of s b h, two each way for every layer and micro-batch (Shoeybi et al.,
// Megatron-LM, 2019, section 3), one for the embedding, one for the head's input gradient, and s b
// + 2 s b for the vocabulary-parallel loss. pp: s b h each way over every boundary. dp: each local
// gradient once. embedding: the tied table's gradient over the two ends. world: the step's three
// scalars.
std::vector<Ledger> ledger(const StepShape& shape, int stage);

}  // namespace mb
