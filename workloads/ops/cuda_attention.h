// Causal attention as products of whole rows of scores, head by head of those that share keys, and
// row kernels between them. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/cuda_call.h"
#include "workloads/ops/dropout.h"
#include "workloads/ops/softmax.h"

namespace mb::cuda {

// Which probabilities dropout keeps; of one sequence of the micro-batch.
struct AttentionMask {
  DropoutMask mask;
  bool drops;
  std::int64_t first_row, sequence;  // of the rows of all queries, heads and samples

  template <class Op>
  AttentionMask(const Op& op, const OpContext& context, std::int64_t batch)
      : mask(dropout_mask(op.dropout, context)),
        drops(op.dropout.probability > 0),
        sequence(op.sequence) {
    const int part =
        context.shard_index * op.head_ways + (op.head_ways > 1 ? context.context_index : 0);
    const std::int64_t heads = op.total_heads ? op.total_heads : op.heads * op.head_ways;
    first_row = ((context.first_sample + batch) * heads + part * op.heads) * op.sequence;
  }
};
template <class M>
struct KeepKey {
  DropoutMask mask;
  std::int64_t first;
  bool drops;
  MB_HD M operator()(std::int64_t key) const {
    return drops ? dropout_of(mask, first + key, M(1)) : M(1);
  }
};

// Rows of scores have room for whole blocks.
template <class Op>
std::int64_t score_row(const Op& op) {
  return whole_blocks(op.sequence);
}

// Scores, [heads, sequence, row], to probabilities after dropout.
template <class T>
struct SoftmaxRow {
  Main<T>* scores;
  T* probabilities;  // the same memory where both are of one type
  Main<T>* lse;
  AttentionMask mask;
  Main<T> scale;
  std::int64_t sequence, row;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t query_of_head) const {
    using M = Main<T>;
    const std::int64_t query = query_of_head % sequence;
    M* x = scores + query_of_head * row;
    T* p = probabilities + query_of_head * row;
    M max = -M(__builtin_inff());
    const M sum = attention_row(team, x, scale, query + 1, sequence, &max);
    lse[query_of_head] = max + log_of(sum);
    const KeepKey<M> keep{mask.mask, (mask.first_row + query_of_head) * mask.sequence, mask.drops};
    team.for_each(sequence, [=](std::int64_t i) { p[i] = x[i] / sum * keep(i); });
  }
};

// Scores and d_probabilities to probabilities after dropout and d_scores.
template <class T>
struct SoftmaxGradientRow {
  Main<T>*scores, *d_scores;
  T *probabilities, *d_scores_out;
  const Main<T>* lse;
  const T *dout, *out;
  AttentionMask mask;
  Main<T> scale;
  std::int64_t sequence, row, head_dim, out_row;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t query_of_head) const {
    using M = Main<T>;
    const std::int64_t query = query_of_head % sequence, head = query_of_head / sequence;
    const T* a = dout + query * out_row + head * head_dim;
    const T* b = out + query * out_row + head * head_dim;
    const M dot = team.template sum<M>(head_dim, [=](std::int64_t i) { return M(a[i]) * M(b[i]); });
    M* x = scores + query_of_head * row;
    M* dx = d_scores + query_of_head * row;
    const KeepKey<M> keep{mask.mask, (mask.first_row + query_of_head) * mask.sequence, mask.drops};
    attention_gradient_row(team, x, dx, scale, lse[query_of_head], dot, query + 1, sequence, keep);
    if constexpr (!kIsMain<T>) {
      T* p = probabilities + query_of_head * row;
      T* d = d_scores_out + query_of_head * row;
      team.for_each(sequence, [=](std::int64_t i) {
        p[i] = x[i];
        d[i] = dx[i];
      });
    }
  }
};

// Offsets and products of one sequence: `group` heads share keys and values.
template <class T, class Op>
struct AttentionShape {
  std::int64_t group, row, q_row, out_row;
  Product to_scores, to_rows, to_keys;

  explicit AttentionShape(const Op& op)
      : group(op.heads / op.kv_heads),
        row(score_row(op)),
        q_row((op.heads + 2 * op.kv_heads) * op.head_dim),
        out_row(op.heads * op.head_dim) {
    const std::int64_t s = op.sequence, d = op.head_dim, of_scores = group * s * row;
    const int batch = static_cast<int>(op.kv_heads);
    const DType in = dtype_of<T>();
    to_scores = {
        {.m = s, .n = s, .k = d, .lda = q_row, .ldb = q_row, .ldc = row, .transpose_b = true},
        in,
        main_dtype(in),
        batch,
        group * d,
        d,
        of_scores};
    to_rows = {{.m = s, .n = d, .k = s, .lda = row, .ldb = q_row, .ldc = out_row},
               in,
               in,
               batch,
               of_scores,
               d,
               group * d};
    to_keys = {
        {.m = s, .n = d, .k = s, .lda = row, .ldb = q_row, .ldc = q_row, .transpose_a = true},
        in,
        main_dtype(in),
        batch,
        of_scores,
        group * d,
        d};
  }
};

template <class T>
void run(const Attention& op, const Call<T>& call) {
  using M = Main<T>;
  const AttentionShape<T, Attention> shape(op);
  const std::int64_t s = op.sequence, d = op.head_dim, size = op.heads * s * shape.row;
  M* scores = call.scratch.template take<M>(size);
  T* probabilities;
  if constexpr (kIsMain<T>) {
    probabilities = scores;
  } else {
    probabilities = call.scratch.template take<T>(size);
  }
  const std::int64_t batches = call.prepares ? 1 : op.batch;
  for (std::int64_t b = 0; b < batches; ++b) {
    const T* q = in<T>(call, 0) + b * s * shape.q_row;
    const T *k = q + op.heads * d, *v = k + op.kv_heads * d;
    T* y = out<T>(call, 0) + b * s * shape.out_row;
    for (std::int64_t g = 0; g < shape.group; ++g)
      multiply(call, shape.to_scores, q + g * d, k, nullptr, scores + g * s * shape.row);
    rows(call, op.heads * s,
         SoftmaxRow<T>{scores, probabilities, out<M>(call, 1) + b * op.heads * s,
                       AttentionMask(op, call.context, b), M(1) / root_of(M(d)), s, shape.row});
    for (std::int64_t g = 0; g < shape.group; ++g)
      multiply(call, shape.to_rows, probabilities + g * s * shape.row, v, nullptr, y + g * d);
  }
}

// dk and dv of the heads that share them, summed in M, to rows of dqkv.
template <class T>
struct KeysRow {
  const Main<T>* from;
  T* dqkv;
  std::int64_t n, q_row;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    convert(team, from + row * n, dqkv + row * q_row, n);
  }
};

template <class T>
void run(const AttentionGradient& op, const Call<T>& call) {
  using M = Main<T>;
  AttentionShape<T, AttentionGradient> shape(op);
  const std::int64_t s = op.sequence, d = op.head_dim, kv = op.kv_heads * d;
  const std::int64_t size = op.heads * s * shape.row;
  M* scores = call.scratch.template take<M>(size);
  M* d_scores = call.scratch.template take<M>(size);
  T *probabilities, *d_scores_in;
  M* keys = nullptr;
  if constexpr (kIsMain<T>) {
    probabilities = scores;
    d_scores_in = d_scores;
  } else {
    probabilities = call.scratch.template take<T>(size);
    d_scores_in = call.scratch.template take<T>(size);
    keys = call.scratch.template take<M>(s * 2 * kv);
    shape.to_keys.ldc = 2 * kv;
  }
  Product to_d_probabilities = shape.to_scores, to_q = shape.to_rows, to_v = shape.to_keys;
  to_d_probabilities.lda = shape.out_row;
  to_q.ldc = shape.q_row;
  to_v.ldb = shape.out_row;
  const std::int64_t batches = call.prepares ? 1 : op.batch;
  for (std::int64_t b = 0; b < batches; ++b) {
    const T* dout = in<T>(call, 0) + b * s * shape.out_row;
    const T* q = in<T>(call, 1) + b * s * shape.q_row;
    const T *k = q + op.heads * d, *v = k + kv;
    T* dq = out<T>(call, 0) + b * s * shape.q_row;
    M *dk, *dv;
    if constexpr (kIsMain<T>) {
      dk = dq + op.heads * d;
    } else {
      dk = keys;
    }
    dv = dk + kv;
    for (std::int64_t g = 0; g < shape.group; ++g) {
      multiply(call, shape.to_scores, q + g * d, k, nullptr, scores + g * s * shape.row);
      multiply(call, to_d_probabilities, dout + g * d, v, nullptr, d_scores + g * s * shape.row);
    }
    rows(call, op.heads * s,
         SoftmaxGradientRow<T>{
             scores, d_scores, probabilities, d_scores_in, in<M>(call, 3) + b * op.heads * s, dout,
             in<T>(call, 2) + b * s * shape.out_row, AttentionMask(op, call.context, b),
             M(1) / root_of(M(d)), s, shape.row, d, shape.out_row});
    for (std::int64_t g = 0; g < shape.group; ++g) {
      const std::int64_t of_head = g * s * shape.row;
      multiply(call, to_q, d_scores_in + of_head, k, nullptr, dq + g * d);
      shape.to_keys.accumulate = to_v.accumulate = g > 0;
      multiply(call, shape.to_keys, d_scores_in + of_head, q + g * d, nullptr, dk);
      multiply(call, to_v, probabilities + of_head, dout + g * d, nullptr, dv);
    }
    if constexpr (!kIsMain<T>)
      rows(call, s, KeysRow<T>{keys, dq + op.heads * d, 2 * kv, shape.q_row});
  }
}

}  // namespace mb::cuda
