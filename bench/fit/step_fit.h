// Constants of a software stack from measured steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/fit/constants.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

struct MeasuredStep {
  ModelConfig model;
  Mesh mesh;
  StepOptions options;
  double seconds = 0;
  std::string source;
};

struct StepsFit {
  std::vector<std::string> names;  // of the constants
  std::optional<ConstantsFit> fit;
  int rows = 0;
  std::string source;
  std::vector<std::string> refused;
};

// Of compute_share, host_us, comm_share and memory_share the one that meets the steps best, then as
// many more, up to three in all, as there are rows for and as predict better what they have not
// seen. A constant that changes none of the steps is left out and named. Puts what it finds into
// `stack`, with its spread and source.
StepsFit fit_steps(std::span<const MeasuredStep> steps, const Machine& machine, Stack& stack);

}  // namespace mb
