// Names and shapes of operations as text.
#include "workloads/base/error.h"
#include "workloads/ops/op.h"
#include "workloads/ops/tokens.h"

namespace mb {
namespace {

std::string name(const LoadBatch&) { return "load_batch"; }
std::string name(const Embedding&) { return "embedding"; }
std::string name(const EmbeddingGradient&) { return "embedding_gradient"; }
std::string name(const AddPositions&) { return "add_positions"; }
std::string name(const PositionGradient&) { return "position_gradient"; }
std::string name(const Norm&) { return "norm"; }
std::string name(const NormGradient&) { return "norm_gradient"; }
std::string name(const Matmul&) { return "matmul"; }
std::string name(const Rotary&) { return "rotary"; }
std::string name(const Attention&) { return "attention"; }
std::string name(const AttentionGradient&) { return "attention_gradient"; }
std::string name(const Gelu&) { return "gelu"; }
std::string name(const GeluGradient&) { return "gelu_gradient"; }
std::string name(const Swiglu&) { return "swiglu"; }
std::string name(const SwigluGradient&) { return "swiglu_gradient"; }
std::string name(const Add&) { return "add"; }
std::string name(const BiasGradient&) { return "bias_gradient"; }
std::string name(const VocabularyMax&) { return "vocabulary_max"; }
std::string name(const VocabularySums&) { return "vocabulary_sums"; }
std::string name(const CrossEntropy&) { return "cross_entropy"; }
std::string name(const CrossEntropyGradient&) { return "cross_entropy_gradient"; }
std::string name(const RingAttention&) { return "ring_attention"; }
std::string name(const RingAttentionGradient&) { return "ring_attention_gradient"; }
std::string name(const PackKv&) { return "pack_kv"; }
std::string name(const HeadShuffle&) { return "head_shuffle"; }
std::string name(const TokenShuffle&) { return "token_shuffle"; }
std::string name(const Route&) { return "route"; }
std::string name(const BalanceLoss&) { return "balance_loss"; }
std::string name(const RouteGradient&) { return "route_gradient"; }
std::string name(const Dispatch& op) { return op.gradient ? "dispatch_gradient" : "dispatch"; }
std::string name(const Combine&) { return "combine"; }
std::string name(const CombineGradient&) { return "combine_gradient"; }
std::string name(const ExpertMatmul&) { return "expert_matmul"; }
std::string name(const ExpertActivation&) { return "expert_activation"; }
std::string name(const ExpertActivationGradient&) { return "expert_activation_gradient"; }
std::string name(const DropoutRows&) { return "dropout_rows"; }
std::string name(const StartStep&) { return "start_step"; }
std::string name(const UpdateLossScale&) { return "update_loss_scale"; }
std::string name(const GradientNorm&) { return "gradient_norm"; }
std::string name(const UpdateParameters&) { return "update_parameters"; }
std::string name(const Cast&) { return "cast"; }
std::string name(const Accumulate&) { return "accumulate"; }

std::string flag(bool set, const char* text) { return set ? cat(" ", text) : ""; }
std::string kind_text(NormKind kind) { return kind == NormKind::layer ? " layer" : " rms"; }
std::string heads_text(const auto& op) {
  return cat(" ", op.batch, "x", op.sequence, " heads ", op.heads, "/", op.kv_heads, "x",
             op.head_dim);
}

// " split 2z/4": over 2 context ranks, zig-zag, and 4 tensor ranks.
std::string split_text(const TokenSplit& split) {
  if (!is_split(split)) return "";
  return cat(" split ", split.context_ways, split.zigzag ? "z" : "", "/", split.row_ways);
}
std::string dropout_text(const Dropout& dropout) {
  return dropout.probability == 0 ? "" : cat(" dropout ", dropout.probability);
}
std::string slice_text(const FlatSlice& slice) {
  return cat(" ", slice.n, " of ", slice.ways, flag(slice.expert, "expert"));
}

std::string shape(const LoadBatch& op) {
  return cat(" ", op.batch, "x", op.sequence, split_text(op.split));
}
std::string shape(const Embedding& op) {
  return cat(" ", op.rows, "x", op.n, " of ", op.vocabulary);
}
std::string shape(const EmbeddingGradient& op) {
  return cat(" ", op.rows, "x", op.n, " of ", op.vocabulary, flag(op.accumulate, "accumulate"));
}
std::string shape(const AddPositions& op) {
  return cat(" ", op.batch, "x", op.sequence, "x", op.n, split_text(op.split));
}
std::string shape(const PositionGradient& op) {
  return cat(" ", op.batch, "x", op.sequence, "x", op.n, split_text(op.split),
             flag(op.accumulate, "accumulate"));
}
std::string shape(const Norm& op) { return cat(kind_text(op.kind), " ", op.rows, "x", op.n); }
std::string shape(const NormGradient& op) {
  return cat(kind_text(op.kind), " ", op.rows, "x", op.n, flag(op.residual, "residual"),
             flag(op.accumulate, "accumulate"));
}
std::string shape(const Matmul& op) {
  return cat(" ", op.m, "x", op.n, "x", op.k, " ", op.transpose_a ? "t" : "n",
             op.transpose_b ? "t" : "n", flag(op.bias, "bias"), flag(op.accumulate, "accumulate"));
}
std::string shape(const Rotary& op) {
  return heads_text(op) + split_text(op.split) + flag(op.inverse, "inverse");
}
std::string attention_text(const auto& op) { return heads_text(op) + dropout_text(op.dropout); }
std::string shape(const Attention& op) { return attention_text(op); }
std::string shape(const AttentionGradient& op) { return attention_text(op); }
std::string shape(const Add& op) {
  return cat(" ", op.rows, "x", op.n, flag(op.bias, "bias"), dropout_text(op.dropout),
             split_text(op.split));
}
std::string shape(const DropoutRows& op) {
  return cat(" ", op.rows, "x", op.n, dropout_text(op.dropout), split_text(op.split));
}
std::string shape(const GradientNorm& op) { return slice_text(op.slice); }
std::string shape(const UpdateParameters& op) {
  return slice_text(op.slice) + (op.moments ? " adamw" : " sgd");
}
std::string shape(const Cast& op) { return cat(" ", op.n, op.to_main ? " to main" : " from main"); }
std::string shape(const Accumulate& op) {
  return cat(" ", op.n, flag(op.accumulate, "accumulate"));
}
std::string shape(const BiasGradient& op) {
  return cat(" ", op.rows, "x", op.n, flag(op.accumulate, "accumulate"));
}
std::string shape(const CrossEntropy& op) { return cat(" ", op.rows); }
std::string ring_text(const auto& op) {
  return cat(attention_text(op), split_text(op.split), " step ", op.step);
}
std::string shape(const RingAttention& op) { return ring_text(op); }
std::string shape(const RingAttentionGradient& op) { return ring_text(op); }
std::string shape(const PackKv& op) {
  return cat(" ", op.rows, " heads ", op.heads, "/", op.kv_heads, "x", op.head_dim,
             flag(op.inverse, "inverse"));
}
std::string shape(const HeadShuffle& op) {
  return cat(" ", op.rows, " heads ", op.heads, "/", op.kv_heads, "x", op.head_dim, " to ", op.ways,
             flag(op.inverse, "inverse"));
}
std::string shape(const TokenShuffle& op) {
  return cat(" ", op.batch, "x", op.sequence, "x", op.n, split_text(op.split),
             flag(op.inverse, "inverse"));
}
std::string routing_text(const Routing& r) {
  return cat(" ", r.rows(), split_text(r.split), " top ", r.top, " of ", r.experts,
             r.capacity ? cat(" capacity ", r.capacity) : "");
}
std::string expert_rows_text(const ExpertRows& r) {
  return cat(" ", r.rows, " to ", r.experts, flag(r.fixed > 0, "fixed"));
}
std::string shape(const ExpertMatmul& op) {
  const char* products[] = {"forward", "input_gradient", "weight_gradient"};
  return cat(expert_rows_text(op.rows), " ", op.n, "x", op.k, " ",
             products[static_cast<int>(op.product)], flag(op.accumulate, "accumulate"));
}
std::string shape(const ExpertActivation& op) {
  return cat(expert_rows_text(op.rows), " ", op.n, flag(op.gated, "gated"));
}
std::string shape(const ExpertActivationGradient& op) {
  return cat(expert_rows_text(op.rows), " ", op.n, flag(op.gated, "gated"));
}
// The rest is of a routing, or [rows, n], perhaps of a vocabulary, or of a step's scalars.
std::string shape(const auto& op) {
  if constexpr (requires { op.routing; }) {
    if constexpr (requires { op.n; }) return cat(routing_text(op.routing), " ", op.n);
    return routing_text(op.routing);
  } else if constexpr (requires { op.vocabulary; }) {
    return cat(" ", op.rows, "x", op.n, " of ", op.vocabulary);
  } else if constexpr (requires { op.rows + op.n; }) {
    return cat(" ", op.rows, "x", op.n);
  } else {
    return "";
  }
}

}  // namespace

std::string name_of(const Op& op) {
  return std::visit([](const auto& kind) { return name(kind); }, op.kind);
}

std::string to_text(const Op& op) {
  const std::string text =
      std::visit([](const auto& kind) { return name(kind) + shape(kind); }, op.kind);
  return op.dtype == DType::fp32 ? text : cat(text, " ", name_of(op.dtype));
}

}  // namespace mb
