// Moves around the exchanges of context parallelism. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/cuda_call.h"
#include "workloads/ops/tokens.h"

namespace mb::cuda {

template <class Team, class T>
MB_HD void copy_row(Team team, const T* x, T* y, std::int64_t n) {
  team.for_each(
      n, [](std::int64_t, T& to, T from) { to = from; }, y, x);
}

template <class T>
struct PackRow {
  const T* x;
  T* y;
  std::int64_t kv_row, skipped;
  bool inverse;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t packed = row * kv_row, whole = row * (skipped + kv_row) + skipped;
    copy_row(team, x + (inverse ? packed : whole), y + (inverse ? whole : packed), kv_row);
  }
};
template <class T>
void run(const PackKv& op, const Call<T>& call) {
  rows(call, op.rows,
       PackRow<T>{in<T>(call, 0), out<T>(call, 0), 2 * op.kv_heads * op.head_dim,
                  op.heads * op.head_dim, op.inverse});
}

// Where element i of a row stands once heads are apart: in the part of the rank that gets them.
// Divided in 32 bits, which a row has room in: in 64 bits a GPU takes some hundred instructions.
template <class T>
struct HeadShuffleRow {
  HeadShuffle op;
  const T* x;
  T* y;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const auto q = static_cast<std::uint32_t>(op.heads * op.head_dim);
    const auto kv = static_cast<std::uint32_t>(op.kv_heads * op.head_dim);
    const auto ways = static_cast<std::uint32_t>(op.ways);
    const std::uint32_t n = q + 2 * kv, n_each = n / ways, q_each = q / ways, kv_each = kv / ways;
    team.for_each(n, [=, *this](std::int64_t at) {
      const auto i = static_cast<std::uint32_t>(at);
      const std::uint32_t first = i < q ? 0 : i < q + kv ? q : q + kv;
      const std::uint32_t first_each = i < q ? 0 : i < q + kv ? q_each : q_each + kv_each;
      const std::uint32_t share = i < q ? q_each : kv_each, part = (i - first) / share;
      const std::int64_t apart =
          (part * op.rows + row) * n_each + first_each + (i - first - part * share);
      const std::int64_t whole = row * n + i;
      y[op.inverse ? whole : apart] = x[op.inverse ? apart : whole];
    });
  }
};
template <class T>
void run(const HeadShuffle& op, const Call<T>& call) {
  rows(call, op.rows, HeadShuffleRow<T>{op, in<T>(call, 0), out<T>(call, 0)});
}

// Rows of all ranks, one rank after the other.
template <class T>
struct TokenShuffleRow {
  TokenShuffle op;
  const T* x;
  T* y;
  std::int64_t rows_of_rank;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const TokenPlace place =
        place_of_row(op.split, op.batch, op.sequence, static_cast<int>(row / rows_of_rank), 0,
                     row % rows_of_rank);
    const std::int64_t ordered = place.sequence * op.sequence + place.position;
    copy_row(team, x + (op.inverse ? ordered : row) * op.n, y + (op.inverse ? row : ordered) * op.n,
             op.n);
  }
};
template <class T>
void run(const TokenShuffle& op, const Call<T>& call) {
  TokenShuffle all = op;
  all.split.row_ways = 1;
  const std::int64_t rows_of_rank = rows_of(all.split, op.batch, op.sequence);
  rows(call, rows_of_rank * op.split.context_ways,
       TokenShuffleRow<T>{all, in<T>(call, 0), out<T>(call, 0), rows_of_rank});
}

}  // namespace mb::cuda
