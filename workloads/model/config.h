// ModelConfig: the sizes of a transformer, and the table of published models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/ops/op.h"

namespace mb {

enum class Arch : std::uint8_t {
  gpt,    // learned positions, LayerNorm, GELU, biases
  llama,  // RMSNorm, SwiGLU, rotary positions, grouped-query attention, no biases
};
// Before the sublayer, or after its residual sum.
enum class NormPlace : std::uint8_t { pre, post };
std::string_view name_of(Arch arch);
std::string_view name_of(NormPlace place);

struct ModelConfig {
  std::string name;
  Arch arch = Arch::gpt;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0,
               vocabulary = 0, sequence = 0;
  // A router sends each token to so many of the experts, each an MLP of its own; 1 expert is a
  // dense model. Above 0, the capacity factor limits an expert to that multiple of its even share
  // of every sequence's tokens, and drops the rest (Fedus et al., Switch Transformer, 2022).
  std::int64_t experts = 1, experts_per_token = 1;
  double capacity_factor = 0;
  double balance_coefficient = 0.01;  // of the load-balancing loss
  NormPlace norm = NormPlace::pre;
  bool tied = true;  // the head's weight is the embedding table
  float norm_epsilon = 1e-5f;
  float rotary_base = 10000.0f;
  double init_std = 0.02;
  // The table is padded to a multiple of this, times the tensor ranks.
  std::int64_t vocabulary_multiple = 1;

  bool operator==(const ModelConfig&) const = default;
};

const std::vector<ModelConfig>& published_models();
// One of them by name. Throws Error naming the nearest known name.
ModelConfig find_model(std::string_view name);
// Sets a field from text: "layers" or "model.layers" to "24". Fields that agree with their usual
// value go on agreeing: head_dim with hidden / heads, kv_heads with heads, and in a gpt ffn with
// 4 * hidden; so set those after hidden and heads where they are to differ. Throws Error naming the
// field, the value and what would do.
void set_field(ModelConfig& model, std::string_view field, std::string_view value);
// Throws Error if the sizes do not fit together: heads * head_dim, kv_heads dividing heads,
// positive sizes.
void check_model(const ModelConfig& model);
// JSON in the form that --model=@FILE reads; every field, one object.
std::string to_json(const ModelConfig& model);
// Fields that the object leaves out have their usual value (see set_field). Throws Error, which
// starts with `origin`, for text that is no such object or a model that check_model refuses.
ModelConfig model_from_json(std::string_view text, std::string_view origin);

// Tokens that an expert takes of a sequence; 0: all that come.
std::int64_t expert_capacity(const ModelConfig& model);

// Rows of the embedding table when it is divided over `ways` tensor ranks.
std::int64_t padded_vocabulary(const ModelConfig& model, int ways);

}  // namespace mb
