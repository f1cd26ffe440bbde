// What a step is besides its model and mesh.
#pragma once

#include <cstdint>
#include <string>

#include "workloads/base/dtype.h"

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

struct StepOptions {
  std::string schedule = "1f1b";
  std::int64_t micro_batch = 1;  // sequences
  int micro_batches = 1;         // of each data rank
  DType dtype = DType::fp32;
  OptimizerOptions optimizer;
  std::int64_t bucket_bytes =
      25 << 20;  // of gradients that are reduced in one call; PyTorch's default
  bool operator==(const StepOptions&) const = default;
};

}  // namespace mb
