// FLOPs and bytes of operations.
#include "workloads/ops/op.h"

#include <algorithm>

#include "workloads/ops/tokens.h"

namespace mb {
namespace {

double product(auto... sizes) { return (1.0 * ... * static_cast<double>(sizes)); }

// Times an operand crosses memory: once if it is only written, twice if it is updated.
double written(bool accumulate) { return accumulate ? 2 : 1; }

double qkv_elements(const auto& op) {
  return product(op.batch, op.sequence, op.heads + 2 * op.kv_heads, op.head_dim);
}
double head_elements(const auto& op) {
  return product(op.batch, op.sequence, op.heads, op.head_dim);
}
// Keys and values of all ranks.
double ring_kv_elements(const auto& op) {
  return product(op.batch, op.sequence, 2 * op.kv_heads, op.head_dim);
}
double token_rows(const auto& op) { return product(rows_of(op.split, op.batch, op.sequence)); }
double head_rows(const auto& op) { return product(op.batch, op.sequence, op.heads); }

// The tensors of an operation by element type.
struct Traffic {
  double elements = 0;       // of the operation's dtype
  double main_elements = 0;  // of main_dtype()
  double rounded = 0;        // of the operation's dtype, but there only if that is 16-bit
  double indices = 0;        // int32
  double scalars = 0;        // fp64
};

Traffic traffic(const LoadBatch& op) {
  return {.indices = (op.tokens + op.labels) * token_rows(op)};
}
// Of the table, only the rows that tokens name.
Traffic traffic(const Embedding& op) {
  return {.elements = product(std::min(op.rows, op.vocabulary), op.n) + product(op.rows, op.n),
          .indices = product(op.rows)};
}
Traffic traffic(const EmbeddingGradient& op) {
  const double table = op.accumulate ? 2 * product(std::min(op.rows, op.vocabulary), op.n)
                                     : product(op.vocabulary, op.n);
  return {.elements = product(op.rows, op.n), .main_elements = table, .indices = product(op.rows)};
}
// Positions that a rank's tokens have.
double position_rows(const auto& op) {
  return std::min(token_rows(op), product(op.sequence / op.split.context_ways));
}
Traffic traffic(const AddPositions& op) {
  return {.elements = (position_rows(op) + 2 * token_rows(op)) * product(op.n)};
}
Traffic traffic(const PositionGradient& op) {
  const double rows = op.accumulate ? 2 * position_rows(op) : product(op.sequence);
  return {.elements = token_rows(op) * product(op.n), .main_elements = rows * product(op.n)};
}
Traffic traffic(const Norm& op) {
  const int vectors = op.kind == NormKind::layer ? 2 : 1;
  return {.elements = 2 * product(op.rows, op.n) + vectors * product(op.n),
          .main_elements = vectors * product(op.rows)};
}
Traffic traffic(const NormGradient& op) {
  const int vectors = op.kind == NormKind::layer ? 2 : 1;
  return {.elements = (op.residual ? 4 : 3) * product(op.rows, op.n) + product(op.n),
          .main_elements = vectors * (product(op.rows) + written(op.accumulate) * product(op.n))};
}
Traffic traffic(const Matmul& op) {
  const double read = product(op.m, op.k) + product(op.k, op.n) + (op.bias ? product(op.n) : 0);
  const double c = written(op.accumulate) * product(op.m, op.n);
  return {.elements = read + (op.to_main ? 0 : c), .main_elements = op.to_main ? c : 0};
}
Traffic traffic(const Rotary& op) {
  return {.elements = 2 * token_rows(op) * product(op.heads + op.kv_heads, op.head_dim)};
}
Traffic traffic(const Attention& op) {
  return {.elements = qkv_elements(op) + head_elements(op), .main_elements = head_rows(op)};
}
Traffic traffic(const AttentionGradient& op) {
  return {.elements = 2 * qkv_elements(op) + 2 * head_elements(op), .main_elements = head_rows(op)};
}
Traffic traffic(const Gelu& op) { return {.elements = 2 * product(op.rows, op.n)}; }
Traffic traffic(const GeluGradient& op) { return {.elements = 3 * product(op.rows, op.n)}; }
Traffic traffic(const Swiglu& op) { return {.elements = 3 * product(op.rows, op.n)}; }
Traffic traffic(const SwigluGradient& op) { return {.elements = 5 * product(op.rows, op.n)}; }
Traffic traffic(const Add& op) {
  return {.elements = 3 * product(op.rows, op.n) + (op.bias ? product(op.n) : 0)};
}
Traffic traffic(const DropoutRows& op) { return {.elements = 2 * product(op.rows, op.n)}; }
Traffic traffic(const BiasGradient& op) {
  return {.elements = product(op.rows, op.n),
          .main_elements = written(op.accumulate) * product(op.n)};
}
Traffic traffic(const VocabularyMax& op) {
  return {.elements = product(op.rows, op.n), .main_elements = product(op.rows)};
}
Traffic traffic(const VocabularySums& op) {
  return {.elements = product(op.rows, op.n),
          .main_elements = 3 * product(op.rows),
          .indices = product(op.rows)};
}
Traffic traffic(const CrossEntropy& op) {
  return {.main_elements = 2 * product(op.rows), .indices = product(op.rows), .scalars = 4};
}
Traffic traffic(const CrossEntropyGradient& op) {
  return {.elements = 2 * product(op.rows, op.n),
          .main_elements = 2 * product(op.rows),
          .indices = product(op.rows),
          .scalars = 1};
}
Traffic traffic(const StartStep&) { return {.scalars = kStepSums}; }
Traffic traffic(const UpdateLossScale&) { return {.scalars = 7}; }
Traffic traffic(const GradientNorm& op) {
  return {.main_elements = product(op.slice.n), .scalars = 2};
}
Traffic traffic(const UpdateParameters& op) {
  return {.main_elements = (op.moments ? 7 : 3) * product(op.slice.n),
          .rounded = product(op.slice.n),
          .scalars = 4};
}
Traffic traffic(const Cast& op) {
  return {.elements = product(op.n), .main_elements = product(op.n)};
}
Traffic traffic(const Accumulate& op) {
  return {.main_elements = (1 + written(op.accumulate)) * product(op.n)};
}

// Ring attention moves what it computes on: all of it, without regard to empty parts.
Traffic traffic(const RingAttention& op) {
  const double again = written(op.step > 0), ways = op.split.context_ways;
  return {.elements = (ring_kv_elements(op) + (1 + again) * head_elements(op)) / ways,
          .main_elements = again * head_rows(op) / ways};
}
Traffic traffic(const RingAttentionGradient& op) {
  const double again = written(op.step > 0), ways = op.split.context_ways;
  return {.elements = ((1 + again) * ring_kv_elements(op) + (3 + again) * head_elements(op)) / ways,
          .main_elements = head_rows(op) / ways};
}
Traffic traffic(const PackKv& op) {
  return {.elements = 4 * product(op.rows, op.kv_heads, op.head_dim)};
}
Traffic traffic(const HeadShuffle& op) {
  return {.elements = 2 * product(op.rows, op.heads + 2 * op.kv_heads, op.head_dim)};
}
Traffic traffic(const TokenShuffle& op) {
  return {.elements = 2 * product(op.batch, op.sequence, op.n)};
}

double choices(const Routing& r) { return product(r.rows(), r.top); }
double balance_elements(const Routing& r) { return 2 * product(r.batch, r.experts); }

Traffic traffic(const Route& op) {
  const Routing& r = op.routing;
  return {.elements = product(r.rows(), r.experts),
          .main_elements = product(r.rows(), r.experts) + choices(r) + balance_elements(r),
          .indices = 2 * choices(r) + product(r.experts)};
}
Traffic traffic(const BalanceLoss& op) {
  return {.main_elements = balance_elements(op.routing), .scalars = 2};
}
Traffic traffic(const RouteGradient& op) {
  const Routing& r = op.routing;
  return {.elements = product(r.rows(), r.experts),
          .main_elements = product(r.rows(), r.experts) + 2 * choices(r) + balance_elements(r),
          .indices = choices(r),
          .scalars = 1};
}
Traffic traffic(const Dispatch& op) {
  return {.elements = product(op.routing.rows() + op.routing.buffer_rows(), op.n),
          .indices = choices(op.routing)};
}
Traffic traffic(const Combine& op) {
  return {.elements = product(op.routing.rows() + op.routing.buffer_rows(), op.n),
          .main_elements = choices(op.routing),
          .indices = choices(op.routing)};
}
Traffic traffic(const CombineGradient& op) {
  return {.elements = product(op.routing.rows() + 2 * op.routing.buffer_rows(), op.n),
          .main_elements = 2 * choices(op.routing),
          .indices = choices(op.routing)};
}
double expert_counts(const ExpertRows& rows) {
  return rows.fixed ? 0 : product(rows.sources, rows.experts);
}
Traffic traffic(const ExpertMatmul& op) {
  const double weights = product(op.rows.experts, op.n, op.k);
  const bool is_gradient = op.product == ExpertProduct::weight_gradient;
  return {.elements = product(op.rows.rows, op.n + op.k) + (is_gradient ? 0 : weights),
          .main_elements = is_gradient ? written(op.accumulate) * weights : 0,
          .indices = expert_counts(op.rows)};
}
Traffic traffic(const ExpertActivation& op) {
  return {.elements = product(op.rows.rows, op.n, op.gated ? 3 : 2),
          .indices = expert_counts(op.rows)};
}
Traffic traffic(const ExpertActivationGradient& op) {
  return {.elements = product(op.rows.rows, op.n, op.gated ? 5 : 3),
          .indices = expert_counts(op.rows)};
}

// What a step has of the lower triangle of whole sequences. Without zig-zag, ranks from `step` on
// have a whole block, the others none: this is their mean.
double ring_share(const auto& op) {
  const double ways = op.split.context_ways;
  const double blocks = op.step == 0 || op.split.zigzag ? 1 : 2 * (ways - op.step) / ways;
  return blocks / (ways * ways);
}

}  // namespace

double flops(const Op& op) {
  if (const auto* matmul = std::get_if<Matmul>(&op.kind)) {
    return 2 * product(matmul->m, matmul->n, matmul->k);
  }
  // Two products of the lower triangle: 2 * 2 * sequence^2 / 2 * head_dim for each head.
  if (const auto* forward = std::get_if<Attention>(&op.kind)) {
    return 2 * head_elements(*forward) * product(forward->sequence);
  }
  if (const auto* backward = std::get_if<AttentionGradient>(&op.kind)) {
    return 4 * head_elements(*backward) * product(backward->sequence);
  }
  if (const auto* forward = std::get_if<RingAttention>(&op.kind)) {
    return 2 * head_elements(*forward) * product(forward->sequence) * ring_share(*forward);
  }
  if (const auto* backward = std::get_if<RingAttentionGradient>(&op.kind)) {
    return 4 * head_elements(*backward) * product(backward->sequence) * ring_share(*backward);
  }
  if (const auto* matmul = std::get_if<ExpertMatmul>(&op.kind)) {
    return 2 * product(matmul->rows.rows, matmul->n, matmul->k);
  }
  return 0;
}

double bytes_moved(const Op& op) {
  const Traffic t = std::visit([](const auto& kind) { return traffic(kind); }, op.kind);
  const DType main = main_dtype(op.dtype);
  const double rounded = op.dtype == main ? 0 : t.rounded;
  return (t.elements + rounded) * size_of(op.dtype) + t.main_elements * size_of(main) +
         t.indices * size_of(DType::int32) + t.scalars * size_of(DType::fp64);
}

}  // namespace mb
