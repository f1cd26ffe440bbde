// Trains a small model on a mesh of threads and gathers what the ranks hold into unsharded tensors.
#pragma once

#include <vector>

#include "bench/analysis/verify.h"
#include "parallel/exec/executor.h"
#include "parallel/strategy/step.h"

namespace mb::test {

struct Trained {
  Unsharded gradients;   // of the last step, divided by the valid tokens, not clipped
  Unsharded parameters;  // after the last step
  std::vector<Training> steps;
};

struct TrainOptions {
  int steps = 1;
  std::int64_t global_batch = 8;
  const BatchSource* batches = nullptr;  // default: the Markov source
  InitOptions init{.seed = 1, .perturbed = true};
};
// `options.micro_batches` is set from the global batch.
Trained train(const ModelConfig& model, const Mesh& mesh, StepOptions options,
              const TrainOptions& train);

}  // namespace mb::test
