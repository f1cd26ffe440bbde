#include "workloads/model/counts.h"

namespace mb {
namespace {

std::int64_t attention_width(const ModelConfig& model) { return model.heads * model.head_dim; }
std::int64_t qkv_width(const ModelConfig& model) {
  return (model.heads + 2 * model.kv_heads) * model.head_dim;
}
// Outputs of the first MLP matmul: SwiGLU has a gate beside it.
std::int64_t up_width(const ModelConfig& model) {
  return model.arch == Arch::llama ? 2 * model.ffn : model.ffn;
}

// Weights of one layer that multiply a token's activations: qkv, attention output, MLP, or the
// router and as many experts as are given.
std::int64_t layer_matmul_weights(const ModelConfig& model, std::int64_t experts) {
  const std::int64_t router = model.experts > 1 ? model.experts : 0;
  return model.hidden * (qkv_width(model) + attention_width(model) + router +
                         experts * (up_width(model) + model.ffn));
}

std::int64_t norm_parameters(const ModelConfig& model) {
  return model.arch == Arch::llama ? model.hidden : 2 * model.hidden;
}

}  // namespace

std::int64_t layer_parameter_count(const ModelConfig& model) {
  const std::int64_t mlp = model.experts > 1 ? 0 : up_width(model) + model.hidden;
  const std::int64_t biases = qkv_width(model) + model.hidden + mlp;
  return layer_matmul_weights(model, model.experts) + 2 * norm_parameters(model) +
         (model.arch == Arch::gpt ? biases : 0);
}

std::int64_t parameter_count(const ModelConfig& model) {
  const std::int64_t table = model.vocabulary * model.hidden;
  std::int64_t count = table + model.layers * layer_parameter_count(model);
  if (model.arch == Arch::gpt) count += model.sequence * model.hidden;
  if (model.norm == NormPlace::pre) count += norm_parameters(model);
  if (!model.tied) count += table;
  return count;
}

double layer_multiply_adds(const ModelConfig& model) {
  return static_cast<double>(layer_matmul_weights(model, model.experts_per_token)) +
         static_cast<double>(attention_width(model)) * static_cast<double>(model.sequence);
}

std::string_view name_of(FlopConvention convention) {
  return convention == FlopConvention::megatron ? "megatron" : "palm";
}

double model_flops(const ModelConfig& model, std::int64_t sequences, FlopConvention convention) {
  const double tokens = static_cast<double>(sequences) * static_cast<double>(model.sequence);
  // Forward and backward of both attention matmuls over the full square, per token.
  const double square = 12.0 * static_cast<double>(model.layers) *
                        static_cast<double>(attention_width(model)) *
                        static_cast<double>(model.sequence);
  const std::int64_t table = model.vocabulary * model.hidden;
  switch (convention) {
    case FlopConvention::megatron: {
      const std::int64_t weights =
          model.layers * layer_matmul_weights(model, model.experts_per_token) +
          padded_vocabulary(model, 1) * model.hidden;
      return tokens * (6.0 * static_cast<double>(weights) + square / 2);
    }
    case FlopConvention::palm: {
      const std::int64_t idle = layer_matmul_weights(model, model.experts) -
                                layer_matmul_weights(model, model.experts_per_token);
      const std::int64_t weights =
          parameter_count(model) - (model.tied ? 0 : table) - model.layers * idle;
      return tokens * (6.0 * static_cast<double>(weights) + square);
    }
  }
  return 0;
}

}  // namespace mb
