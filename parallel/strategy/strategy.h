// What a step is besides its model and mesh.
#pragma once

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/schedule/user_schedule.h"
#include "workloads/base/dtype.h"
#include "workloads/model/layers.h"

namespace mb {

enum class Optimizer : std::uint8_t { adamw, sgd };

struct OptimizerOptions {
  Optimizer kind = Optimizer::adamw;
  double learning_rate = 3e-4;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices; norms and biases do not decay
  double clip = 1.0;          // of the global gradient norm; 0 is off
  bool operator==(const OptimizerOptions&) const = default;
};

enum class Recompute : std::uint8_t {
  none,
  attention,  // the attention core from its saved queries, keys and values
  full        // a layer from its input
};

// From first to last, both included.
struct IntRange {
  int first = 0, last = INT_MAX;
  bool has(int i) const { return first <= i && i <= last; }
  bool operator==(const IntRange&) const = default;
};

// Each off: what would run beside computation holds it up until it is done. Numbers stay the same.
struct Overlap {
  bool reduce = true;  // sums of gradients, beside the backward
  bool gather = true;  // parameters of ZeRO, one block ahead or beside the next step's forward
  bool sends = true;   // activations and their gradients between stages
  bool operator==(const Overlap&) const = default;
};

struct StepOptions {
  std::string schedule = "1f1b";  // a name, or @FILE with `user_schedule`
  UserSchedule user_schedule;
  int chunks = 0;  // stages of a pipeline rank; 0: the fewest that the schedule takes
  int group = 0;   // micro-batches of a round of interleaved; 0: pipeline ranks
  // Layers of every stage; empty: the same for all where that goes, else as even as it goes with
  // the head counting as much as its FLOPs.
  std::vector<int> layout;
  std::int64_t micro_batch = 1;  // sequences
  int micro_batches = 1;         // of each data rank
  DType dtype = DType::fp32;     // of parameters and activations; see main_dtype
  double dropout = 0;            // of embeddings, attention and what is added to the residual
  // What data ranks divide: 1 optimizer state, 2 also reduced gradients, 3 also parameters
  // (Rajbhandari et al., ZeRO, 2020).
  int zero = 0;
  bool reshard = true;  // ZeRO-3: release parameters after each pass, or keep them for the step
  bool sequence_parallel = false;
  int tensor_chunks = 1;  // runs of rows that a matmul beside a tensor rank's exchange is cut into
  ContextKind context = ContextKind::ring;
  Recompute recompute = Recompute::none;
  IntRange recompute_layers, recompute_micro_batches;
  bool reduce_in_dtype = false;  // gradients are summed over data ranks in `dtype`, else main_dtype
  bool offload_optimizer = false, offload_activations = false;
  Overlap overlap;
  double loss_scale = 1;            // of fp16: the first one, if dynamic
  bool dynamic_loss_scale = false;  // halved by overflow, doubled by 1,000 good steps
  OptimizerOptions optimizer;
  std::int64_t bucket_bytes =
      25 << 20;  // of gradients that are reduced in one call; PyTorch's default
  bool operator==(const StepOptions&) const = default;
};

}  // namespace mb
