// Trains a small model on a mesh of threads and gathers what the ranks hold into unsharded tensors.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/exec/executor.h"
#include "parallel/strategy/step.h"
#include "workloads/model/data.h"

namespace mb::test {

struct Trained {
  std::map<std::string, std::vector<double>>
      gradients;  // of the last step, divided by the valid tokens, not clipped
  std::map<std::string, std::vector<double>> parameters;  // after the last step
  std::vector<Training> steps;
};

// Gathers `pick(ParameterTensors)` of every parameter from the ranks. Fails the running test if two
// ranks that hold the same element differ.
std::map<std::string, std::vector<double>> gather(const Plan& plan, const Executor& executor,
                                                  TensorId ParameterTensors::*pick,
                                                  double scale = 1);

struct TrainOptions {
  int steps = 1;
  std::int64_t global_batch = 8;
  const BatchSource* batches = nullptr;  // default: the Markov source
  InitOptions init{.seed = 1, .perturbed = true};
};
// `options.micro_batches` is set from the global batch.
Trained train(const ModelConfig& model, const Mesh& mesh, StepOptions options,
              const TrainOptions& train);

// Largest over tensors of |a - b| / |b| (norms), with an absolute floor for tensors whose true
// value is zero: the floor is `floor` times the norm of all tensors together.
double largest_error(const std::map<std::string, std::vector<double>>& a,
                     const std::map<std::string, std::vector<double>>& b, double floor = 1e-3);

}  // namespace mb::test
