// StepShape: the case that closed forms are of. They know nothing of the Plan, so that plan and
// measurement can be held against them: bubble_form.h, ledger.h, memory_form.h.
#pragma once

#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

struct StepShape {
  ModelConfig model;
  Mesh mesh;
  StepOptions options;

  int stages() const { return mesh.size(Axis::pp); }  // pipeline ranks
};

}  // namespace mb
