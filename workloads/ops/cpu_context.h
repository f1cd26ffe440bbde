// Context parallelism: steps of ring attention, and the moves around all-to-alls. Part of
// cpu_kernels.cc.
#pragma once

#include "workloads/ops/cpu_attention.h"

namespace mb {
namespace {

template <class T>
void run(const RingAttention& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const AttentionStep step = ring_step(op, call.context);
  const HeadLayout& l = step.layout;
  const std::int64_t y_size = l.rows() * l.out_row;
  const M* qkv = widen(in<T>(call, 0), l.rows() * l.q_row, Scratch::wide_a);
  const M* kv = widen(in<T>(call, 1), l.rows() * l.kv_row, Scratch::wide_b);
  M* y = widen_result(out<T>(call, 0), y_size, Scratch::wide_c, !step.is_first);
  attention<M>(step, call.matmul, qkv, kv, y, out<M>(call, 1));
  narrow(y, out<T>(call, 0), y_size);
}

template <class T>
void run(const RingAttentionGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const AttentionStep step = ring_step(op, call.context);
  const HeadLayout& l = step.layout;
  const std::int64_t qkv_size = l.rows() * l.q_row, kv_size = l.rows() * l.kv_row;
  const M* dy = widen(in<T>(call, 0), l.rows() * l.out_row, Scratch::wide_a);
  const M* qkv = widen(in<T>(call, 1), qkv_size, Scratch::wide_b);
  const M* kv = widen(in<T>(call, 2), kv_size, Scratch::wide_c);
  const M* y = widen(in<T>(call, 3), l.rows() * l.out_row, Scratch::wide_d);
  // With its k and v part, which stays.
  M* dqkv = widen_result(out<T>(call, 0), qkv_size, Scratch::wide_e, true);
  M* dkv = widen_result(out<T>(call, 1), kv_size, Scratch::wide_f, !step.is_first);
  attention_gradient<M>(step, call.matmul, dy, qkv, kv, y, in<M>(call, 4), dqkv, dkv);
  narrow(dqkv, out<T>(call, 0), qkv_size);
  narrow(dkv, out<T>(call, 1), kv_size);
}

template <class T>
void run(const PackKv& op, const KernelCall<T>& call) {
  const std::int64_t kv_row = 2 * op.kv_heads * op.head_dim;
  const std::int64_t skipped = op.heads * op.head_dim, qkv_row = skipped + kv_row;
  const T* x = in<T>(call, 0);
  T* y = out<T>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r) {
    if (op.inverse) {
      copy(x + r * kv_row, y + r * qkv_row + skipped, kv_row);
    } else {
      copy(x + r * qkv_row + skipped, y + r * kv_row, kv_row);
    }
  }
}

template <class T>
void run(const HeadShuffle& op, const KernelCall<T>& call) {
  const T* x = in<T>(call, 0);
  T* y = out<T>(call, 0);
  const std::int64_t row = (op.heads + 2 * op.kv_heads) * op.head_dim;
  // Moves share `part` of heads that begin at column `first` of a row.
  const auto move = [&](std::int64_t r, std::int64_t part, std::int64_t first, std::int64_t heads) {
    const std::int64_t n = heads * op.head_dim / op.ways;
    const std::int64_t whole = r * row + first + part * n;
    const std::int64_t shuffled = (part * op.rows + r) * (row / op.ways) + first / op.ways;
    copy(x + (op.inverse ? shuffled : whole), y + (op.inverse ? whole : shuffled), n);
  };
  for (std::int64_t r = 0; r < op.rows; ++r) {
    for (std::int64_t part = 0; part < op.ways; ++part) {
      move(r, part, 0, op.heads);
      move(r, part, op.heads * op.head_dim, op.kv_heads);
      move(r, part, (op.heads + op.kv_heads) * op.head_dim, op.kv_heads);
    }
  }
}

template <class T>
void run(const TokenShuffle& op, const KernelCall<T>& call) {
  TokenSplit split = op.split;
  split.row_ways = 1;
  const std::int64_t rows = rows_of(split, op.batch, op.sequence);
  for (int rank = 0; rank < split.context_ways; ++rank) {
    for_each_run(split, op.batch, op.sequence, rank, 0,
                 [&](std::int64_t row, const TokenPlace& place, std::int64_t count) {
                   const std::int64_t apart = (rank * rows + row) * op.n;
                   const std::int64_t ordered =
                       (place.sequence * op.sequence + place.position) * op.n;
                   copy(in<T>(call, 0) + (op.inverse ? ordered : apart),
                        out<T>(call, 0) + (op.inverse ? apart : ordered), count * op.n);
                 });
  }
}

}  // namespace
}  // namespace mb
