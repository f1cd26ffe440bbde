// Closed forms of a model: parameters and FLOPs. Each names its source.
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

// Of a token's forward in one layer: the weights that it meets, of experts those that it is sent
// to, and both products of causal attention.
double layer_multiply_adds(const ModelConfig& model);

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

}  // namespace mb
