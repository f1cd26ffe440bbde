// Causal attention in tiles of query rows. Part of cpu_kernels.cc.
//
// A tile of kQueryTile queries meets all keys up to its last one, so only the triangle in its last
// block is computed in vain. Tiles run from the last to the first: the last one touches every key,
// and its dk and dv start the sums that the others add to.
#pragma once

#include <cstdint>

#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/scratch.h"
#include "workloads/ops/softmax.h"
#include "workloads/ops/team.h"

namespace mb {
namespace {

constexpr std::int64_t kQueryTile = 64;

// Sizes that both passes share, and where a head's q, k and v stand inside packed qkv rows.
struct HeadLayout {
  std::int64_t heads, kv_heads, head_dim, sequence;
  std::int64_t qkv_row, out_row, score_row;

  template <class Op>
  static HeadLayout of(const Op& op) {
    // Not a power of two: rows of scores then fall into different cache sets.
    return {op.heads,
            op.kv_heads,
            op.head_dim,
            op.sequence,
            (op.heads + 2 * op.kv_heads) * op.head_dim,
            op.heads * op.head_dim,
            whole_blocks(op.sequence) + kScoreBlock};
  }
  std::int64_t q(std::int64_t batch, std::int64_t head) const {
    return batch * sequence * qkv_row + head * head_dim;
  }
  std::int64_t k(std::int64_t batch, std::int64_t head) const {
    return q(batch, heads + head / (heads / kv_heads));
  }
  std::int64_t v(std::int64_t batch, std::int64_t head) const {
    return k(batch, head) + kv_heads * head_dim;
  }
  std::int64_t out(std::int64_t batch, std::int64_t head) const {
    return batch * sequence * out_row + head * head_dim;
  }
  std::int64_t lse(std::int64_t batch, std::int64_t head) const {
    return (batch * heads + head) * sequence;
  }
};

// Rows [first, first + rows) of a head against keys [0, keys).
struct QueryTile {
  std::int64_t first, rows, keys;
};
static inline QueryTile query_tile(std::int64_t index, std::int64_t sequence) {
  const std::int64_t first = index * kQueryTile;
  const std::int64_t end = first + kQueryTile < sequence ? first + kQueryTile : sequence;
  return {first, end - first, end};
}
static inline std::int64_t query_tiles(std::int64_t sequence) {
  return (sequence + kQueryTile - 1) / kQueryTile;
}

template <class T>
static T* scores_scratch(Scratch use, const HeadLayout& layout) {
  return static_cast<T*>(thread_scratch(use, sizeof(T) * kQueryTile * layout.score_row));
}

template <class T>
static T score_scale(std::int64_t head_dim) {
  return T(1) / root_of(T(head_dim));
}

template <class T>
static void attention_head(const HeadLayout& l, MatmulFunction<T> matmul, const T* q, const T* k,
                           const T* v, T* out, T* lse) {
  const T scale = score_scale<T>(l.head_dim);
  T* scores = scores_scratch<T>(Scratch::scores, l);
  for (std::int64_t index = 0; index < query_tiles(l.sequence); ++index) {
    const QueryTile tile = query_tile(index, l.sequence);
    T* out_tile = out + tile.first * l.out_row;
    T sums[kQueryTile];
    matmul({.m = tile.rows,
            .n = tile.keys,
            .k = l.head_dim,
            .lda = l.qkv_row,
            .ldb = l.qkv_row,
            .ldc = l.score_row,
            .transpose_b = true},
           q + tile.first * l.qkv_row, k, nullptr, scores);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      T max;
      const std::int64_t row = tile.first + i;
      sums[i] =
          attention_row(SerialTeam{}, scores + i * l.score_row, scale, row + 1, tile.keys, &max);
      lse[row] = max + T(__builtin_log(sums[i]));
    }
    matmul({.m = tile.rows,
            .n = l.head_dim,
            .k = tile.keys,
            .lda = l.score_row,
            .ldb = l.qkv_row,
            .ldc = l.out_row},
           scores, v, nullptr, out_tile);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      T* out_row = out_tile + i * l.out_row;
      const T inverse = T(1) / sums[i];
      SerialTeam{}.for_each(l.head_dim, [=](std::int64_t j) { out_row[j] *= inverse; });
    }
  }
}

// dk and dv are overwritten if `first_of_group`, else added to: the query heads of a group share
// them.
template <class T>
static void attention_gradient_head(const HeadLayout& l, MatmulFunction<T> matmul, const T* dout,
                                    const T* q, const T* k, const T* v, const T* out, const T* lse,
                                    T* dq, T* dk, T* dv, bool first_of_group) {
  const T scale = score_scale<T>(l.head_dim);
  T* scores = scores_scratch<T>(Scratch::scores, l);
  T* d_scores = scores_scratch<T>(Scratch::d_scores, l);
  const std::int64_t tiles = query_tiles(l.sequence);
  for (std::int64_t index = tiles - 1; index >= 0; --index) {
    const QueryTile tile = query_tile(index, l.sequence);
    const T* q_tile = q + tile.first * l.qkv_row;
    const T* dout_tile = dout + tile.first * l.out_row;
    const bool accumulate = !first_of_group || index != tiles - 1;
    MatmulShape product{.m = tile.rows,
                        .n = tile.keys,
                        .k = l.head_dim,
                        .lda = l.qkv_row,
                        .ldb = l.qkv_row,
                        .ldc = l.score_row,
                        .transpose_b = true};
    matmul(product, q_tile, k, nullptr, scores);
    product.lda = l.out_row;
    matmul(product, dout_tile, v, nullptr, d_scores);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = tile.first + i;
      const T* a = dout + row * l.out_row;
      const T* b = out + row * l.out_row;
      const T dot = SerialTeam{}.sum<T>(l.head_dim, [=](std::int64_t j) { return a[j] * b[j]; });
      attention_gradient_row(SerialTeam{}, scores + i * l.score_row, d_scores + i * l.score_row,
                             scale, lse[row], dot, row + 1, tile.keys);
    }
    matmul({.m = tile.rows,
            .n = l.head_dim,
            .k = tile.keys,
            .lda = l.score_row,
            .ldb = l.qkv_row,
            .ldc = l.qkv_row},
           d_scores, k, nullptr, dq + tile.first * l.qkv_row);
    MatmulShape sum{.m = tile.keys,
                    .n = l.head_dim,
                    .k = tile.rows,
                    .lda = l.score_row,
                    .ldb = l.qkv_row,
                    .ldc = l.qkv_row,
                    .transpose_a = true,
                    .accumulate = accumulate};
    matmul(sum, d_scores, q_tile, nullptr, dk);
    sum.ldb = l.out_row;
    matmul(sum, scores, dout_tile, nullptr, dv);
  }
}

}  // namespace
}  // namespace mb
