// Closed forms of a model: parameters, FLOPs, activations. Each names its source.
#pragma once

#include <cstdint>
#include <string_view>

#include "workloads/model/config.h"

namespace mb {

// Parameters of the whole model, vocabulary not padded.
std::int64_t parameter_count(const ModelConfig& model);
std::int64_t layer_parameter_count(const ModelConfig& model);

// How attention and the vocabulary are counted; part of every MFU that is printed.
enum class FlopConvention : std::uint8_t {
  megatron,  // 6 per weight in a matmul (padded head included), causal half of attention: 6 s h per
             // token and layer
  palm,      // 6 N + 12 L h s: all parameters but an untied input embedding, full attention square
};
std::string_view name_of(FlopConvention convention);

// Model FLOPs of a step (forward and backward, nothing recomputed) over `sequences` sequences of
// model.sequence tokens.
double model_flops(const ModelConfig& model, std::int64_t sequences, FlopConvention convention);

// Activation elements that one layer keeps for its backward, for `batch` sequences and `ways`
// tensor ranks without sequence parallelism. GPT at ways = 1: 16 s b h + a s b (log-sum-exp) + 4 s
// b (norm statistics).
std::int64_t layer_activation_elements(const ModelConfig& model, std::int64_t batch, int ways);

}  // namespace mb
