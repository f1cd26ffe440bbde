// Closed forms of a model: parameters, FLOPs, activations. Each names its source.
#pragma once

#include <cstdint>
#include <string_view>

#include "workloads/model/config.h"

namespace mb {

// Parameters of the whole model, vocabulary not padded. For a gpt this is equation (2) of Narayanan
// et al., SC 2021, 12 L h^2 (1 + 13 / 12 h + (V + s) / 12 L h), plus 2 h of the final norm.
std::int64_t parameter_count(const ModelConfig& model);
// Of one layer; a gpt with ffn = 4 h has 12 h^2 + 13 h.
std::int64_t layer_parameter_count(const ModelConfig& model);

// How attention and the vocabulary are counted; part of every MFU that is printed.
enum class FlopConvention : std::uint8_t {
  // 6 per weight in a matmul (padded head included), causal half of attention: 6 s h per token and
  // layer. As num_floating_point_operations in Megatron-LM's training.py.
  megatron,
  // 6 N + 12 L h s: all parameters but an untied input embedding, full attention square. Chowdhery
  // et al. 2022 (PaLM), appendix B.
  palm,
};
std::string_view name_of(FlopConvention convention);

// Model FLOPs of a step (forward and backward, nothing recomputed) over `sequences` sequences of
// model.sequence tokens. The padded head is that of one tensor rank.
double model_flops(const ModelConfig& model, std::int64_t sequences, FlopConvention convention);

// Activation elements that one layer keeps for its backward, for `batch` sequences and `ways`
// tensor ranks without sequence parallelism: both norms' inputs, outputs and statistics, qkv, the
// attention output with its log-sum-exp, both sides of the MLP's activation. GPT at ways = 1:
// 16 s b h + a s b (log-sum-exp) + 4 s b (norm statistics). Throws Error if heads, kv_heads or ffn
// do not divide by `ways`.
std::int64_t layer_activation_elements(const ModelConfig& model, std::int64_t batch, int ways);

}  // namespace mb
