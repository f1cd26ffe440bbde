// Attention by cuDNN's fused kernels where they go, else as products of tiles of scores, all heads
// at once, and row kernels between them: the memory of scores grows with the length of a sequence,
// not with its square. Part of cuda_ops.cu.
//
// A tile of queries meets all keys up to its last one, so only the triangle in its last block is
// computed in vain. Gradients go from the last tile to the first: the last one touches every key,
// and its dk and dv start the sums that the others add to.
#pragma once

#include <algorithm>
#include <cstdint>

#include "workloads/ops/attention_step.h"
#include "workloads/ops/cuda_call.h"
#include "workloads/ops/softmax.h"

namespace mb::cuda {

// Queries of a tile: enough for products to be large.
inline constexpr std::int64_t kQueryTile = 256;

// A tile of one sequence; scores are [heads, rows of the tile, row].
struct ScoreTile {
  AttentionStep step;
  QueryTile tile;
  std::int64_t batch, row;

  MB_HD std::int64_t head(std::int64_t i) const { return i / tile.rows; }
  MB_HD std::int64_t query(std::int64_t i) const { return tile.first + i % tile.rows; }
  MB_HD std::int64_t lse(std::int64_t i) const {
    return step.layout.lse(batch, head(i)) + query(i);
  }
  std::int64_t rows() const { return step.layout.heads * tile.rows; }
};

// Scores to probabilities after dropout; lse goes on by a step. `kept` of a query is what its
// results of earlier steps are multiplied by; null in the first.
template <class T>
struct SoftmaxRow {
  ScoreTile at;
  Main<T>* scores;
  T* probabilities;  // the same memory where both are of one type
  Main<T>*lse, *kept;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t i) const {
    using M = Main<T>;
    const AttentionStep& step = at.step;
    const std::int64_t query = at.query(i), width = at.tile.keys;
    M* x = scores + i * at.row;
    T* p = probabilities + i * at.row;
    M* own_lse = lse + at.lse(i);
    const M before = kept ? *own_lse : -M(__builtin_inff());
    M max = before;
    const M new_sum = attention_row(team, x, score_scale<M>(step.layout.head_dim),
                                    step.reach(query), width, &max);
    const M old_sum = exp_of(before - max);
    const M total = old_sum + new_sum;
    const M* const weights = x;
    if (step.drops) {
      const auto keep = step.keep<M>(at.batch, at.head(i), query);
      const auto one = [=](std::int64_t key, T& to, M a) { to = a / total * keep(key); };
      team.for_each(width, one, p, weights);
    } else {
      team.for_each(
          width, [=](std::int64_t, T& to, M a) { to = a / total; }, p, weights);
    }
    *own_lse = max + log_of(total);
    if (kept) kept[i] = old_sum / total;
  }
};

// Results of earlier steps, weighed anew, plus those of this one. Row of the tile.
template <class T>
struct MergeRow {
  ScoreTile at;
  const Main<T>*sums, *kept;
  T* out;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t i) const {
    const HeadLayout& l = at.step.layout;
    const Main<T>* x = sums + i * l.out_row;
    T* y = out + (at.tile.first + i) * l.out_row;
    const auto one = [=, *this](std::int64_t j, T& to, Main<T> before, Main<T> more) {
      const std::int64_t head = j / at.step.layout.head_dim;
      to = before * kept[head * at.tile.rows + i] + more;
    };
    const T* const earlier = y;
    team.for_each(l.out_row, one, y, earlier, x);
  }
};

// Scores and d_probabilities to probabilities after dropout and d_scores.
template <class T>
struct SoftmaxGradientRow {
  ScoreTile at;
  Main<T>*scores, *d_scores;
  T *probabilities, *d_scores_out;
  const Main<T>* lse;
  const T *dout, *out;  // of this sequence
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t i) const {
    using M = Main<T>;
    const AttentionStep& step = at.step;
    const HeadLayout& l = step.layout;
    const std::int64_t query = at.query(i), head = at.head(i), width = at.tile.keys;
    const T* a = dout + query * l.out_row + head * l.head_dim;
    const T* b = out + query * l.out_row + head * l.head_dim;
    const M dot = team.template sum<M>(
        l.head_dim, [](std::int64_t, M p, M q) { return p * q; }, a, b);
    M* x = scores + i * at.row;
    M* dx = d_scores + i * at.row;
    const M scale = score_scale<M>(l.head_dim), of_query = lse[at.lse(i)];
    if (step.drops) {
      attention_gradient_row(team, x, dx, scale, of_query, dot, step.reach(query), width,
                             step.keep<M>(at.batch, head, query));
    } else {
      attention_gradient_row(team, x, dx, scale, of_query, dot, step.reach(query), width,
                             KeepAll{});
    }
    if constexpr (!kIsMain<T>) {
      T* p = probabilities + i * at.row;
      T* d = d_scores_out + i * at.row;
      const M *const weights = x, *const slopes = dx;
      const auto round = [](std::int64_t, T& to_p, T& to_d, M weight, M slope) {
        to_p = weight;
        to_d = slope;
      };
      team.for_each(width, round, p, d, weights, slopes);
    }
  }
};

// Sums in M to rows of dk and dv, which they start or add to.
template <class T>
struct KeysRow {
  const Main<T>* from;
  T* to;
  std::int64_t n, row_length;
  bool accumulate;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    if (accumulate) return add_to(team, from + row * n, to + row * row_length, n);
    convert(team, from + row * n, to + row * row_length, n);
  }
};

// Products of a tile, of the first of the heads that share keys; the others are `group` of them.
template <class T>
struct TileProducts {
  Product to_scores, to_rows, to_keys;
  TileProducts(const ScoreTile& at) {
    const HeadLayout& l = at.step.layout;
    const std::int64_t d = l.head_dim, group = l.heads / l.kv_heads;
    const std::int64_t rows = at.tile.rows, of_scores = group * rows * at.row;
    const int batch = static_cast<int>(l.kv_heads);
    const DType in = dtype_of<T>(), main = main_dtype(in);
    to_scores = {{.m = rows,
                  .n = at.tile.keys,
                  .k = d,
                  .lda = l.q_row,
                  .ldb = l.kv_row,
                  .ldc = at.row,
                  .transpose_b = true},
                 in,
                 main,
                 batch,
                 group * d,
                 d,
                 of_scores};
    to_rows = {
        {.m = rows, .n = d, .k = at.tile.keys, .lda = at.row, .ldb = l.kv_row, .ldc = l.out_row},
        in,
        in,
        batch,
        of_scores,
        d,
        group * d};
    to_keys = {{.m = at.tile.keys,
                .n = d,
                .k = rows,
                .lda = at.row,
                .ldb = l.q_row,
                .ldc = kIsMain<T> ? l.kv_row : 2 * l.kv_heads * d,
                .transpose_a = true},
               in,
               main,
               batch,
               of_scores,
               group * d,
               d};
  }
};

// Scores of a tile, in M and where products read them.
template <class T>
struct ScoreRoom {
  Main<T>* scores;
  T* rounded;
  ScoreRoom(const Call<T>& call, std::int64_t size)
      : scores(call.scratch.template take<Main<T>>(size)) {
    if constexpr (kIsMain<T>) {
      rounded = scores;
    } else {
      rounded = call.scratch.template take<T>(size);
    }
  }
};

// Whatever the step, so that what is prepared for one is enough for all.
inline std::int64_t largest_tile(const HeadLayout& l) { return std::min(kQueryTile, l.sequence); }

template <class T>
AttentionShape shape_of(const AttentionStep& step, bool gradient) {
  const HeadLayout& l = step.layout;
  return {dtype_of<T>(), gradient,   l.batch, l.heads,  l.kv_heads,
          l.head_dim,    l.sequence, l.q_row, l.kv_row, l.out_row};
}

// Why no fused kernel is asked for; null if one is.
template <class T>
const char* why_tiled(const Call<T>& call, const AttentionStep& step) {
  if (kIsMain<T>) return "fused kernels are for bf16 and fp16";
  if (!call.fused) return "attention=tiled";
  if (step.drops) return "fused kernels draw dropout in their own order";
  if (!step.is_first) return "later steps of a ring go on with what those before have summed";
  return nullptr;
}

template <class T>
bool is_fused(const Call<T>& call, const AttentionStep& step, bool gradient) {
  const char* const reason = why_tiled(call, step);
  if (reason && call.prepares) note_attention(cat("tiles of products: ", reason));
  if (reason) return false;
  const AttentionShape shape = shape_of<T>(step, gradient);
  return call.prepares ? call.fused->prepare(shape) : call.fused->ready(shape);
}

template <class T>
void attention(const Call<T>& call, const AttentionStep& step, const T* q, const T* k, T* out,
               Main<T>* lse) {
  using M = Main<T>;
  const HeadLayout& l = step.layout;
  if (is_fused(call, step, false)) {
    if (!call.prepares)
      call.fused->forward(shape_of<T>(step, false), q, k, k + l.kv_heads * l.head_dim, out, lse);
    return;
  }
  const std::int64_t row = whole_blocks(l.sequence), most = largest_tile(l);
  const ScoreRoom<T> room(call, l.heads * most * row);
  M *sums = nullptr, *kept = nullptr;
  if (!step.is_first || call.prepares) {
    sums = call.scratch.template take<M>(most * l.out_row);
    kept = call.scratch.template take<M>(most * l.heads);
  }
  if (call.prepares) return;
  const std::int64_t group = l.heads / l.kv_heads, d = l.head_dim;
  for (std::int64_t b = 0; b < l.batch; ++b) {
    for (std::int64_t index = 0; index < query_tiles(step, kQueryTile); ++index) {
      const QueryTile tile = query_tile(step, kQueryTile, index);
      const ScoreTile at{step, tile, b, row};
      TileProducts<T> products(at);
      const T* of_tile = q + l.q(b, 0) + tile.first * l.q_row;
      for (std::int64_t g = 0; g < group; ++g)
        multiply(call, products.to_scores, of_tile + g * d, k + l.k(b, 0), nullptr,
                 room.scores + g * tile.rows * row);
      rows(call, at.rows(), SoftmaxRow<T>{at, room.scores, room.rounded, lse, kept});
      T* to = out + l.out(b, 0);
      for (std::int64_t g = 0; g < group; ++g) {
        const T* probabilities = room.rounded + g * tile.rows * row;
        if (step.is_first) {
          multiply(call, products.to_rows, probabilities, k + l.v(b, 0), nullptr,
                   to + tile.first * l.out_row + g * d);
        } else {
          products.to_rows.out = main_dtype(products.to_rows.in);
          multiply(call, products.to_rows, probabilities, k + l.v(b, 0), nullptr, sums + g * d);
        }
      }
      if (!step.is_first) rows(call, tile.rows, MergeRow<T>{at, sums, kept, to});
    }
  }
}

template <class T>
void attention_gradient(const Call<T>& call, const AttentionStep& step, const T* dout, const T* q,
                        const T* k, const T* out, const Main<T>* lse, T* dq, T* dk) {
  using M = Main<T>;
  const HeadLayout& l = step.layout;
  const std::int64_t row = whole_blocks(l.sequence), d = l.head_dim, kv = l.kv_heads * d;
  if (is_fused(call, step, true)) {
    if (!call.prepares)
      call.fused->gradient(shape_of<T>(step, true), dout, q, k, k + kv, out, lse, dq, dk, dk + kv);
    return;
  }
  const std::int64_t size = l.heads * largest_tile(l) * row;
  const ScoreRoom<T> room(call, size), d_room(call, size);
  M* keys = kIsMain<T> ? nullptr : call.scratch.template take<M>(l.sequence * 2 * kv);
  const std::int64_t tiles = query_tiles(step, kQueryTile), group = l.heads / l.kv_heads;
  if (call.prepares || tiles == 0) return;
  for (std::int64_t b = 0; b < l.batch; ++b) {
    const T *own_k = k + l.k(b, 0), *own_v = k + l.v(b, 0);
    const T *own_dout = dout + l.out(b, 0), *own_out = out + l.out(b, 0);
    M* dk_sums;
    if constexpr (kIsMain<T>) {
      dk_sums = dk + l.k(b, 0);
    } else {
      dk_sums = keys;
    }
    bool adds = kIsMain<T> && !step.is_first;
    for (std::int64_t index = tiles - 1; index >= 0; --index) {
      const QueryTile tile = query_tile(step, kQueryTile, index);
      const ScoreTile at{step, tile, b, row};
      const TileProducts<T> products(at);
      Product to_d_probabilities = products.to_scores, to_q = products.to_rows;
      Product to_k = products.to_keys, to_v = products.to_keys;
      to_d_probabilities.lda = to_v.ldb = l.out_row;
      to_q.ldc = l.q_row;
      to_q.accumulate = !step.is_first;
      const std::int64_t q_at = l.q(b, 0) + tile.first * l.q_row;
      const T* dout_tile = own_dout + tile.first * l.out_row;
      for (std::int64_t g = 0; g < group; ++g) {
        const std::int64_t of_head = g * tile.rows * row;
        multiply(call, products.to_scores, q + q_at + g * d, own_k, nullptr, room.scores + of_head);
        multiply(call, to_d_probabilities, dout_tile + g * d, own_v, nullptr,
                 d_room.scores + of_head);
      }
      rows(call, at.rows(),
           SoftmaxGradientRow<T>{at, room.scores, d_room.scores, room.rounded, d_room.rounded, lse,
                                 own_dout, own_out});
      for (std::int64_t g = 0; g < group; ++g) {
        const std::int64_t of_head = g * tile.rows * row;
        multiply(call, to_q, d_room.rounded + of_head, own_k, nullptr, dq + q_at + g * d);
        to_k.accumulate = to_v.accumulate = adds;
        multiply(call, to_k, d_room.rounded + of_head, q + q_at + g * d, nullptr, dk_sums);
        multiply(call, to_v, room.rounded + of_head, dout_tile + g * d, nullptr, dk_sums + kv);
        adds = true;
      }
    }
    if constexpr (!kIsMain<T>)
      rows(call, step.keys, KeysRow<T>{keys, dk + l.k(b, 0), 2 * kv, l.kv_row, !step.is_first});
  }
}

template <class T>
void run(const Attention& op, const Call<T>& call) {
  const AttentionStep step = whole_attention(op, call.context);
  const T* qkv = in<T>(call, 0);
  attention(call, step, qkv, qkv + step.layout.out_row, out<T>(call, 0), out<Main<T>>(call, 1));
}

template <class T>
void run(const AttentionGradient& op, const Call<T>& call) {
  const AttentionStep step = whole_attention(op, call.context);
  const std::int64_t k = step.layout.out_row;
  const T* qkv = in<T>(call, 1);
  T* dqkv = out<T>(call, 0);
  attention_gradient(call, step, in<T>(call, 0), qkv, qkv + k, in<T>(call, 2), in<Main<T>>(call, 3),
                     dqkv, dqkv + k);
}

template <class T>
void run(const RingAttention& op, const Call<T>& call) {
  attention(call, ring_step(op, call.context), in<T>(call, 0), in<T>(call, 1), out<T>(call, 0),
            out<Main<T>>(call, 1));
}

template <class T>
void run(const RingAttentionGradient& op, const Call<T>& call) {
  attention_gradient(call, ring_step(op, call.context), in<T>(call, 0), in<T>(call, 1),
                     in<T>(call, 2), in<T>(call, 3), in<Main<T>>(call, 4), out<T>(call, 0),
                     out<T>(call, 1));
}

}  // namespace mb::cuda
