#include "bench/analysis/theory.h"

#include <algorithm>

#include "workloads/base/error.h"
#include "workloads/model/counts.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

bool first(int stage) { return stage == 0; }
bool last(const StepShape& shape, int stage) { return stage == shape.stages() - 1; }

std::int64_t norm_parameters(const ModelConfig& model) {
  return model.arch == Arch::gpt ? 2 * model.hidden : model.hidden;
}

// Rows of the vocabulary on one tensor rank.
std::int64_t local_vocabulary(const StepShape& shape) {
  const int ways = shape.mesh.size(Axis::tp);
  return padded_vocabulary(shape.model, ways) / ways;
}

// A layer's parameters on one tensor rank: matrices and the biases of column-parallel ones are
// divided, norms and the biases that are added after the sum are not.
std::int64_t local_layer_parameters(const ModelConfig& m, int ways) {
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const std::int64_t up = m.arch == Arch::llama ? 2 * m.ffn : m.ffn;
  const std::int64_t divided = m.hidden * (q + 2 * kv + q + up + m.ffn);
  const std::int64_t divided_biases = m.arch == Arch::gpt ? q + 2 * kv + up : 0;
  const std::int64_t whole = 2 * norm_parameters(m) + (m.arch == Arch::gpt ? 2 * m.hidden : 0);
  return (divided + divided_biases) / ways + whole;
}

std::int64_t head_activation_elements(const StepShape& shape) {
  const std::int64_t rows = shape.model.sequence * shape.options.micro_batch;
  const bool pre = shape.model.norm == NormPlace::pre;
  const std::int64_t statistics = shape.model.arch == Arch::gpt ? 2 : 1;
  const std::int64_t norm = pre ? rows * (shape.model.hidden + statistics) : 0;
  const std::int64_t loss = 3 * rows;  // maximum, sum of exponentials, the label's logit
  return shape.hidden_elements() + norm + rows * local_vocabulary(shape) + loss;
}

}  // namespace

std::int64_t local_parameters(const StepShape& shape, int stage) {
  const ModelConfig& model = shape.model;
  const std::int64_t table = local_vocabulary(shape) * model.hidden;
  std::int64_t count =
      shape.layers_of_stage() * local_layer_parameters(model, shape.mesh.size(Axis::tp));
  if (first(stage)) {
    count += table;
    if (model.arch == Arch::gpt) count += model.sequence * model.hidden;
  }
  if (last(shape, stage)) {
    if (model.norm == NormPlace::pre) count += norm_parameters(model);
    if (!model.tied || shape.stages() > 1) count += table;
  }
  return count;
}

std::optional<std::int64_t> micro_batches_in_flight(const StepShape& shape, int stage) {
  const std::int64_t m = shape.options.micro_batches;
  if (shape.options.schedule == "gpipe") return m;
  if (shape.options.schedule == "1f1b") return std::min<std::int64_t>(m, shape.stages() - stage);
  return std::nullopt;
}

std::array<std::optional<std::int64_t>, kMemoryClasses> memory_form(const StepShape& shape,
                                                                    int stage) {
  const std::int64_t size = size_of(shape.options.dtype);
  const std::int64_t parameters = local_parameters(shape, stage) * size;
  std::array<std::optional<std::int64_t>, kMemoryClasses> form;
  const auto of = [&](MemoryClass memory) -> std::optional<std::int64_t>& {
    return form[static_cast<int>(memory)];
  };
  form.fill(0);
  of(MemoryClass::parameter) = of(MemoryClass::gradient) = parameters;
  if (shape.options.optimizer.kind == Optimizer::adamw) of(MemoryClass::moment) = 2 * parameters;

  const auto in_flight = micro_batches_in_flight(shape, stage);
  of(MemoryClass::activation) = of(MemoryClass::input) = std::nullopt;
  if (!in_flight) return form;
  const std::int64_t per_layer =
      layer_activation_elements(shape.model, shape.options.micro_batch, shape.mesh.size(Axis::tp));
  std::int64_t elements = shape.layers_of_stage() * per_layer;
  if (last(shape, stage)) elements += head_activation_elements(shape);
  of(MemoryClass::activation) = *in_flight * elements * size;
  of(MemoryClass::input) = *in_flight * (first(stage) + last(shape, stage)) * shape.model.sequence *
                           shape.options.micro_batch * size_of(DType::int32);
  return form;
}

}  // namespace mb
