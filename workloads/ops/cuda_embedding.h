// Embeddings of tokens and positions, and their gradients. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/cuda_call.h"
#include "workloads/ops/cuda_rows.h"

namespace mb::cuda {

template <class T>
struct EmbeddingRow {
  const std::int32_t* tokens;
  const T* table;
  T* y;
  std::int64_t n, vocabulary, first;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t entry = tokens[row] - first;
    const bool here = entry >= 0 && entry < vocabulary;
    const T* from = table + (here ? entry : 0) * n;
    T* to = y + row * n;
    team.for_each(
        n, [=](std::int64_t, T& entry_here, T x) { entry_here = here ? x : T(0.0f); }, to, from);
  }
};
template <class T>
void run(const Embedding& op, const Call<T>& call) {
  rows(call, op.rows,
       EmbeddingRow<T>{in<std::int32_t>(call, 0), in<T>(call, 1), out<T>(call, 0), op.n,
                       op.vocabulary, call.context.shard_index * op.vocabulary});
}

// Rows of one token as a list: `next` of each, `rows` after the last; `starts`: whether it is the
// first.
struct TokenListRow {
  const std::int32_t* tokens;
  std::int32_t *next, *starts;
  std::int64_t rows;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int32_t token = tokens[row];
    const double earlier = team.template max<double>(
        row, [=, *this](std::int64_t i) { return tokens[i] == token ? 1.0 : 0.0; });
    // The nearest is the one with most rows from it on.
    const double behind = team.template max<double>(rows - row - 1, [=, *this](std::int64_t i) {
      const std::int64_t at = row + 1 + i;
      return tokens[at] == token ? static_cast<double>(rows - at) : 0.0;
    });
    team.for_each(1, [=, *this](std::int64_t) {
      starts[row] = earlier > 0 ? 0 : 1;
      next[row] =
          static_cast<std::int32_t>(behind > 0 ? rows - static_cast<std::int64_t>(behind) : rows);
    });
  }
};
// The block of a token's first row has the token's row of the table to itself, and adds the
// gradients of all its rows, in their order.
template <class T>
struct EmbeddingGradientRow {
  static constexpr int kWidth = pack_width<T>();
  const std::int32_t *tokens, *next, *starts;
  const T* dy;
  Main<T>* dtable;
  std::int64_t rows, n, vocabulary, first;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t entry = tokens[row] - first;
    if (starts[row] == 0 || entry < 0 || entry >= vocabulary) return;
    const bool wide = n % kWidth == 0 && begin_packs(dy, dtable);
    team.template for_each_pack<kWidth>(n, wide, [=, *this](std::int64_t i, auto width) {
      constexpr int kNow = decltype(width)::value;
      auto sums = load_pack<kNow>(dtable + entry * n + i);
      for (std::int64_t at = row; at < rows; at = next[at]) {
        const auto d = load_pack<kNow>(dy + at * n + i);
        for (int k = 0; k < kNow; ++k) sums.at[k] += Main<T>(d.at[k]);
      }
      store_pack(dtable + entry * n + i, sums);
    });
  }
};
template <class T>
void run(const EmbeddingGradient& op, const Call<T>& call) {
  auto* dtable = out<Main<T>>(call, 0);
  if (!op.accumulate) fill_zero(call, dtable, op.vocabulary * op.n);
  const auto* tokens = in<std::int32_t>(call, 0);
  auto* next = call.scratch.template take<std::int32_t>(op.rows);
  auto* starts = call.scratch.template take<std::int32_t>(op.rows);
  rows(call, op.rows, TokenListRow{tokens, next, starts, op.rows});
  rows(call, op.rows,
       EmbeddingGradientRow<T>{tokens, next, starts, in<T>(call, 1), dtable, op.rows, op.n,
                               op.vocabulary, call.context.shard_index * op.vocabulary});
}

template <class T>
struct PositionRow {
  Places places;
  const T* positions;
  T* x;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    add_to(team, positions + places.of(row).position * n, x + row * n, n);
  }
};
template <class T>
void run(const AddPositions& op, const Call<T>& call) {
  const Places places(op, call.context);
  rows(call, places.rows(), PositionRow<T>{places, in<T>(call, 0), out<T>(call, 0), op.n});
}

// Of one row of a sequence as it is here: every sequence of the micro-batch has it.
template <class T>
struct PositionGradientRow {
  Places places;
  const T* dy;
  Main<T>* dpositions;
  std::int64_t n, rows, here;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t place) const {
    for (std::int64_t row = place; row < rows; row += here)
      add_to(team, dy + row * n, dpositions + places.of(row).position * n, n);
  }
};
template <class T>
void run(const PositionGradient& op, const Call<T>& call) {
  const Places places(op, call.context);
  auto* to = out<Main<T>>(call, 0);
  if (!op.accumulate) fill_zero(call, to, op.sequence * op.n);
  const std::int64_t here = op.sequence / op.split.context_ways;
  rows(call, here, PositionGradientRow<T>{places, in<T>(call, 0), to, op.n, places.rows(), here});
}

}  // namespace mb::cuda
