// Rows of softmax: cross-entropy over a sharded vocabulary, and the causal rows of attention.
#pragma once

#include "workloads/base/half.h"
#include "workloads/base/mutation.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// Columns of shard `shard` (n wide) that hold a vocabulary entry; the rest is padding.
static MB_HD std::int64_t valid_columns(std::int64_t vocabulary, std::int64_t n, int shard) {
  const std::int64_t left = mutated("pad_columns_counted") ? n : vocabulary - shard * n;
  return left < 0 ? 0 : left < n ? left : n;
}

// Column of `label` in shard `shard`, or -1 where another shard has it or it is not valid.
static MB_HD std::int64_t label_column(std::int64_t label, std::int64_t valid, std::int64_t n,
                                       int shard) {
  const std::int64_t column = label - shard * n;
  return column >= 0 && column < valid ? column : -1;
}

template <class Team, class T>
static MB_HD Main<T> max_row(Team team, const T* x, std::int64_t n) {
  return team.template max<Main<T>>(
      n, [](std::int64_t, Main<T> a) { return a; }, x);
}

// Sum of exp(x - max).
template <class Team, class T, class M>
static MB_HD M exp_sum_row(Team team, const T* x, M max, std::int64_t n) {
  return team.template sum<M>(
      n, [=](std::int64_t, M a) { return exp_of(a - max); }, x);
}

// x = loss_scale * (softmax(x) - onehot(column)) over `valid` columns, 0 in the padding; all 0 for
// a token that is not valid. `column` is below 0 where another shard has the label.
template <class Team, class T, class M>
static MB_HD void cross_entropy_gradient_row(Team team, T* x, M max, M sum, M loss_scale,
                                             bool valid_token, std::int64_t column,
                                             std::int64_t valid, std::int64_t n) {
  if (!valid_token) valid = 0;
  const M scale = loss_scale / sum;
  const auto one = [=](std::int64_t i, T& to, M a) {
    to = exp_of(a - max) * scale - (i == column ? loss_scale : M(0));
  };
  const T* const logits = x;
  team.for_each(valid, one, x, logits);
  team.for_each(
      n - valid, [](std::int64_t, T& to) { to = M(0); }, x + valid);
}

// Rows of attention scores have room for a whole number of these, so that no loop has a tail.
inline constexpr std::int64_t kScoreBlock = 16;
static MB_HD std::int64_t whole_blocks(std::int64_t length) {
  return (length + kScoreBlock - 1) / kScoreBlock * kScoreBlock;
}

// Scores of one query to p = exp(scale * x - max) for the first `length` keys and 0 up to `width`.
// Returns the sum. *max comes in as a lower bound and goes out as the maximum of itself and the
// scaled scores.
template <class Team, class T>
static MB_HD T attention_row(Team team, T* x, T scale, std::int64_t length, std::int64_t width,
                             T* max) {
  const std::int64_t padded = whole_blocks(length);
  const T lowest = -static_cast<T>(__builtin_inff());
  const T* const scores = x;
  const auto there = [=](std::int64_t i, T score) { return i < length ? score : lowest; };
  const T highest = scale * team.template max<T>(padded, there, scores);
  const T top = highest < *max ? *max : highest;
  const auto to_probability = [=](std::int64_t i, T& to, T score) {
    const T p = exp_of(score * scale - top);
    return to = i < length ? p : T(0);
  };
  const T sum = team.template sum<T>(padded, to_probability, x, scores);
  team.for_each(
      width - padded, [](std::int64_t, T& to) { to = T(0); }, x + padded);
  *max = top;
  return sum;
}

// Where dropout is off.
struct KeepAll {
  MB_HD int operator()(std::int64_t) const { return 1; }
};

// Scores and d_probabilities of one query to probabilities and d_scores, in place. `dot` is the
// sum of dout * out of the row. `keep` is what dropout multiplies the probability of a key by; it
// has done so in the forward pass, and the probabilities that leave here have been through it too.
template <class Team, class T, class Keep>
static MB_HD void attention_gradient_row(Team team, T* x, T* dp, T scale, T lse, T dot,
                                         std::int64_t length, std::int64_t width, Keep keep) {
  const std::int64_t padded = whole_blocks(length);
  const auto one = [=](std::int64_t i, T& to_p, T& to_ds, T score, T d) {
    const T p = exp_of(score * scale - lse);
    const T kept = static_cast<T>(keep(i));
    const T ds = p * (d * kept - dot) * scale;
    to_p = i < length ? p * kept : T(0);
    to_ds = i < length ? ds : T(0);
  };
  const T *const scores = x, *const d_probabilities = dp;
  team.for_each(padded, one, x, dp, scores, d_probabilities);
  team.for_each(
      width - padded, [](std::int64_t, T& to_p, T& to_ds) { to_p = to_ds = T(0); }, x + padded,
      dp + padded);
}

}  // namespace mb
