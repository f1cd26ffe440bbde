// Why a predicted step takes as long as it does: its parts along the critical path, in seconds.
#pragma once

#include <string>
#include <vector>

#include "bench/analysis/critical_path.h"
#include "parallel/exec/predict.h"

namespace mb {

struct ExplainedPart {
  std::string kind, name;  // as in PathPart
  double seconds = 0;
  bool operator==(const ExplainedPart&) const = default;
};

struct Explained {
  Prediction prediction;
  std::vector<ExplainedPart> parts;  // in the order of PathPart; add up to prediction.step_s
};

// predict(), and what its step is made of. Micro-batches that are not walked one by one have, each
// round of them, the parts that one more round adds.
Explained explain(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                  const Machine& machine, const Stack& stack);

// A part of each of some steps, 0 where a step has none of it.
struct ComparedPart {
  std::string kind, name;
  std::vector<double> seconds;
};
// All parts that any of them has. So their sums, and the sums of their differences, are the steps
// and the differences of the steps.
std::vector<ComparedPart> compare_parts(const std::vector<const Explained*>& steps);

}  // namespace mb
