// Trains a small model on a mesh of threads and gathers what the ranks hold into unsharded tensors.
#pragma once

#include <string>
#include <vector>

#include "bench/analysis/verify.h"
#include "bench/cli/case.h"
#include "parallel/exec/executor.h"

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
  Delays delays = {};
};
// `options.micro_batches` is set from the global batch.
Trained train(const ModelConfig& model, const Mesh& mesh, StepOptions options,
              const TrainOptions& train);

// The words of a case, "model=gpt-tiny mesh=dp2.tp2 zero=2"; its global batch is that of `train`.
Case case_of(const std::string& words);
Trained train(const Case& c, TrainOptions train);
// The same without parallelism, in fp64; kept for the next call that asks for the same.
const Trained& oracle_of(const Case& c, const TrainOptions& train);
// Gradients, parameters, norm, loss and tokens of every step, within `tolerance`.
void expect_equal(const Trained& trained, const Trained& oracle, double tolerance);

}  // namespace mb::test
