// Closed forms of a training step: memory; ledger.h has traffic, bubble_form.h the pipeline's
// bubble. Each names its public source.
//
// They know nothing of the Plan, so that plan and measurement can be held against them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/plan/liveness.h"
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

// Parameters that a rank of `stage` holds, the padded vocabulary and a tied copy included.
std::int64_t local_parameters(const StepShape& shape, int stage);
// Micro-batches whose activations a stage keeps at once: m in GPipe, min(m, p - stage) in 1F1B
// (Narayanan et al., SC 2021); nullopt for any other schedule.
std::optional<std::int64_t> micro_batches_in_flight(const StepShape& shape, int stage);

// Bytes by class in textbook form: parameters, gradients and AdamW's two moments at their size
// (Rajbhandari et al., ZeRO, 2020); for every micro-batch in flight the stored activations of each
// layer (Korthikanti et al., 2022, without dropout and with the log-sum-exp form of attention), on
// the last stage also those of final norm, logits and loss; its tokens and labels. Nothing for
// temporaries and messages. nullopt where a class has no closed form.
std::array<std::optional<std::int64_t>, kMemoryClasses> memory_form(const StepShape& shape,
                                                                    int stage);

}  // namespace mb
