// Attention in tiles of query rows. Part of cpu_kernels.cc.
//
// A tile of kQueryTile queries meets all keys up to its last one, so only the triangle in its last
// block is computed in vain. Tiles run from the last to the first: the last one touches every key,
// and its dk and dv start the sums that the others add to.
#pragma once

#include <cstdint>

#include "workloads/ops/attention_step.h"
#include "workloads/ops/cpu_call.h"
#include "workloads/ops/scratch.h"
#include "workloads/ops/softmax.h"

namespace mb {
namespace {

constexpr std::int64_t kQueryTile = 64;

// Not a power of two: rows of scores then fall into different cache sets.
static inline std::int64_t score_row(const AttentionStep& step) {
  return whole_blocks(step.keys) + kScoreBlock;
}

template <class T>
static T* scores_scratch(Scratch use, const AttentionStep& step) {
  return static_cast<T*>(thread_scratch(use, sizeof(T) * kQueryTile * score_row(step)));
}

// What the rows of a tile take from the steps before, `kept`, and from the sums of this one.
template <class T>
struct RowWeights {
  T kept[kQueryTile], added[kQueryTile];
};

// Scores of a tile to what is left of exp(score - max) after dropout; lse goes on by a step.
template <class T>
static void softmax_tile(const AttentionStep& step, const QueryTile& tile, std::int64_t batch,
                         std::int64_t head, T* scores, T* lse, RowWeights<T>& weights) {
  const T scale = score_scale<T>(step.layout.head_dim);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const std::int64_t query = tile.first + i;
    T* row = scores + i * score_row(step);
    const T before = step.is_first ? -T(__builtin_inff()) : lse[query];
    T max = before;
    const T new_sum = attention_row(kTeam, row, scale, step.reach(query), tile.keys, &max);
    const T old_sum = exp_of(before - max);
    weights.added[i] = T(1) / (old_sum + new_sum);
    weights.kept[i] = old_sum * weights.added[i];
    lse[query] = max + T(__builtin_log(old_sum + new_sum));
    if (!step.drops) continue;
    const auto keep = step.keep<T>(batch, head, query);
    kTeam.for_each(step.reach(query), [=](std::int64_t key) { row[key] *= keep(key); });
  }
}

template <class T>
static void attention_head(const AttentionStep& step, MatmulFunction<T> matmul, std::int64_t batch,
                           std::int64_t head, const T* q, const T* k, const T* v, T* out, T* lse) {
  const HeadLayout& l = step.layout;
  T* scores = scores_scratch<T>(Scratch::scores, step);
  T* sums = static_cast<T*>(thread_scratch(Scratch::row_sums, sizeof(T) * kQueryTile * l.head_dim));
  for (std::int64_t index = 0; index < query_tiles(step, kQueryTile); ++index) {
    const QueryTile tile = query_tile(step, kQueryTile, index);
    RowWeights<T> weights;
    matmul({.m = tile.rows,
            .n = tile.keys,
            .k = l.head_dim,
            .lda = l.q_row,
            .ldb = l.kv_row,
            .ldc = score_row(step),
            .transpose_b = true},
           q + tile.first * l.q_row, k, nullptr, scores);
    softmax_tile(step, tile, batch, head, scores, lse, weights);
    matmul({.m = tile.rows,
            .n = l.head_dim,
            .k = tile.keys,
            .lda = score_row(step),
            .ldb = l.kv_row,
            .ldc = l.head_dim},
           scores, v, nullptr, sums);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const T* x = sums + i * l.head_dim;
      T* y = out + (tile.first + i) * l.out_row;
      const T kept = weights.kept[i], added = weights.added[i];
      if (step.is_first) {
        kTeam.for_each(l.head_dim, [=](std::int64_t j) { y[j] = x[j] * added; });
      } else {
        kTeam.for_each(l.head_dim, [=](std::int64_t j) { y[j] = y[j] * kept + x[j] * added; });
      }
    }
  }
}

// Scores and d_probabilities of a tile to probabilities, as dropout left them, and d_scores.
template <class T>
static void softmax_gradient_tile(const AttentionStep& step, const QueryTile& tile,
                                  std::int64_t batch, std::int64_t head, const T* dout,
                                  const T* out, const T* lse, T* scores, T* d_scores) {
  const HeadLayout& l = step.layout;
  const T scale = score_scale<T>(l.head_dim);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const std::int64_t query = tile.first + i;
    const T* a = dout + query * l.out_row;
    const T* b = out + query * l.out_row;
    const T dot = kTeam.sum<T>(l.head_dim, [=](std::int64_t j) { return a[j] * b[j]; });
    const auto gradient = [&](auto keep) {
      attention_gradient_row(kTeam, scores + i * score_row(step), d_scores + i * score_row(step),
                             scale, lse[query], dot, step.reach(query), tile.keys, keep);
    };
    step.drops ? gradient(step.keep<T>(batch, head, query)) : gradient(KeepAll{});
  }
}

// dk and dv are added to unless this is the first step and the first head of those that share them.
template <class T>
static void attention_gradient_head(const AttentionStep& step, MatmulFunction<T> matmul,
                                    std::int64_t batch, std::int64_t head, const T* dout,
                                    const T* q, const T* k, const T* v, const T* out, const T* lse,
                                    T* dq, T* dk, T* dv) {
  const HeadLayout& l = step.layout;
  T* scores = scores_scratch<T>(Scratch::scores, step);
  T* d_scores = scores_scratch<T>(Scratch::d_scores, step);
  const bool starts = step.is_first && head % (l.heads / l.kv_heads) == 0;
  for (std::int64_t index = query_tiles(step, kQueryTile) - 1; index >= 0; --index) {
    const QueryTile tile = query_tile(step, kQueryTile, index);
    const T* q_tile = q + tile.first * l.q_row;
    const T* dout_tile = dout + tile.first * l.out_row;
    MatmulShape product{.m = tile.rows,
                        .n = tile.keys,
                        .k = l.head_dim,
                        .lda = l.q_row,
                        .ldb = l.kv_row,
                        .ldc = score_row(step),
                        .transpose_b = true};
    matmul(product, q_tile, k, nullptr, scores);
    product.lda = l.out_row;
    matmul(product, dout_tile, v, nullptr, d_scores);
    softmax_gradient_tile(step, tile, batch, head, dout, out, lse, scores, d_scores);
    matmul({.m = tile.rows,
            .n = l.head_dim,
            .k = tile.keys,
            .lda = score_row(step),
            .ldb = l.kv_row,
            .ldc = l.q_row,
            .accumulate = !step.is_first},
           d_scores, k, nullptr, dq + tile.first * l.q_row);
    MatmulShape sum{.m = tile.keys,
                    .n = l.head_dim,
                    .k = tile.rows,
                    .lda = score_row(step),
                    .ldb = l.q_row,
                    .ldc = l.kv_row,
                    .transpose_a = true,
                    .accumulate = !starts || index != query_tiles(step, kQueryTile) - 1};
    matmul(sum, d_scores, q_tile, nullptr, dk);
    sum.ldb = l.out_row;
    matmul(sum, scores, dout_tile, nullptr, dv);
  }
}

// All heads; k stands at the first head of k.
template <class T>
static void attention(const AttentionStep& step, MatmulFunction<T> matmul, const T* q, const T* k,
                      T* out, T* lse) {
  const HeadLayout& l = step.layout;
  for (std::int64_t b = 0; b < l.batch; ++b) {
    for (std::int64_t h = 0; h < l.heads; ++h) {
      attention_head<T>(step, matmul, b, h, q + l.q(b, h), k + l.k(b, h), k + l.v(b, h),
                        out + l.out(b, h), lse + l.lse(b, h));
    }
  }
}

template <class T>
static void attention_gradient(const AttentionStep& step, MatmulFunction<T> matmul, const T* dout,
                               const T* q, const T* k, const T* out, const T* lse, T* dq, T* dk) {
  const HeadLayout& l = step.layout;
  for (std::int64_t b = 0; b < l.batch; ++b) {
    for (std::int64_t h = 0; h < l.heads; ++h) {
      attention_gradient_head<T>(step, matmul, b, h, dout + l.out(b, h), q + l.q(b, h),
                                 k + l.k(b, h), k + l.v(b, h), out + l.out(b, h), lse + l.lse(b, h),
                                 dq + l.q(b, h), dk + l.k(b, h), dk + l.v(b, h));
    }
  }
}

}  // namespace
}  // namespace mb
