// Ring attention, the moves of DeepSpeed-Ulysses and dropout of attention against whole attention.
// Exchanges between ranks are made by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tests/support/reference.h"
#include "workloads/base/rng.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::expect_close;
using testing::garbage;
using testing::in_main;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::tolerance;
using Values = std::vector<double>;

const Backend& reference() {
  static const Backend backend = testing::backends().front();
  return backend;
}

// Attention of one tensor rank, and what goes in: its heads of the whole.
struct Problem {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  Dropout dropout = {};
  int shard = 0, shards = 1;

  std::int64_t rows() const { return batch * sequence; }
  std::int64_t qkv_row() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t out_row() const { return heads * head_dim; }
  int total_heads() const { return static_cast<int>(heads) * shards; }
  Values qkv() const { return own_heads(noise(1, rows() * qkv_row() * shards, 2), true); }
  Values dout() const { return own_heads(noise(2, rows() * out_row() * shards), false); }

  // Of rows of all ranks' heads, with or without those of k and v.
  Values own_heads(const Values& x, bool with_kv) const {
    Values part;
    auto at = x.begin();
    for (std::int64_t r = 0; r < rows(); ++r) {
      for (std::int64_t count : {heads, with_kv ? kv_heads : 0, with_kv ? kv_heads : 0}) {
        const std::int64_t n = count * head_dim;
        part.insert(part.end(), at + shard * n, at + (shard + 1) * n);
        at += shards * n;
      }
    }
    return part;
  }
};

struct Results {
  Values out, lse, dqkv;
};

void expect_equal(const Results& actual, const Results& expected, double tolerance,
                  const std::string& what) {
  expect_close(actual.out, expected.out, tolerance, what + " out");
  expect_close(actual.lse, expected.lse, tolerance, what + " lse");
  expect_close(actual.dqkv, expected.dqkv, tolerance, what + " dqkv");
}

OpContext context_of(int shard_index, int context_index) {
  return {.step = 3,
          .shard_index = shard_index,
          .context_index = context_index,
          .first_sample = 10,
          .seed = 7};
}

Results whole_attention(const Backend& backend, const Problem& p, const Values& qkv,
                        const Values& dout, int context_index = 0, int head_ways = 1) {
  const OpContext context = context_of(p.shard, context_index);
  const int total_heads = p.total_heads() * head_ways;
  const auto saved =
      run_on(backend,
             Attention{p.batch, p.sequence, p.heads, p.kv_heads, p.head_dim, p.dropout, head_ways,
                       total_heads},
             context, {{qkv}}, {garbage(p.rows() * p.out_row()), garbage(p.rows() * p.heads)});
  const auto gradient =
      run_on(backend,
             AttentionGradient{p.batch, p.sequence, p.heads, p.kv_heads, p.head_dim, p.dropout,
                               head_ways, total_heads},
             context, {{dout}, {qkv}, {saved[0]}, {saved[1]}}, {garbage(p.rows() * p.qkv_row())});
  return {saved[0], saved[1], gradient[0]};
}
Results whole_attention(const Backend& backend, const Problem& p) {
  return whole_attention(backend, p, p.qkv(), p.dout());
}

// The positions that a context rank holds of every sequence, in its order.
std::vector<std::int64_t> positions_of(const TokenSplit& split, std::int64_t sequence, int rank) {
  const std::int64_t parts = split.context_ways * (split.zigzag ? 2 : 1), run = sequence / parts;
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < run; ++i) positions.push_back(rank * run + i);
  for (std::int64_t i = 0; split.zigzag && i < run; ++i) {
    positions.push_back((parts - 1 - rank) * run + i);
  }
  return positions;
}

// Of x[outer, sequence, n], the rows of one rank; or the rank's rows put back into the whole.
Values take_rows(const Values& x, const TokenSplit& split, std::int64_t outer,
                 std::int64_t sequence, int rank) {
  const auto n = static_cast<std::int64_t>(x.size()) / (outer * sequence);
  Values part;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t position : positions_of(split, sequence, rank)) {
      const auto row = x.begin() + (o * sequence + position) * n;
      part.insert(part.end(), row, row + n);
    }
  }
  return part;
}
void put_rows(const Values& part, const TokenSplit& split, std::int64_t outer,
              std::int64_t sequence, int rank, Values& whole) {
  const auto n = static_cast<std::int64_t>(whole.size()) / (outer * sequence);
  auto row = part.begin();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t position : positions_of(split, sequence, rank)) {
      std::copy(row, row + n, whole.begin() + (o * sequence + position) * n);
      row += n;
    }
  }
}

// Every rank sends its buffer to the next.
void send_on(std::vector<Values>& buffers) {
  std::rotate(buffers.rbegin(), buffers.rbegin() + 1, buffers.rend());
}

// A ring of context ranks.
class Ring {
 public:
  Ring(const Backend& backend, const Problem& problem, const TokenSplit& split)
      : backend_(backend), p_(problem), split_(split), rows_(p_.rows() / split.context_ways) {
    for (int rank = 0; rank < split.context_ways; ++rank) {
      qkv_.push_back(take_rows(p_.qkv(), split, p_.batch, p_.sequence, rank));
      dout_.push_back(take_rows(p_.dout(), split, p_.batch, p_.sequence, rank));
      kv_.push_back(run_on(backend_, pack(false), {}, {{qkv_[rank]}}, {garbage(kv_size())})[0]);
      out_.push_back(garbage(rows_ * p_.out_row()).values);
      lse_.push_back(garbage(rows_ * p_.heads).values);
      dqkv_.push_back(garbage(rows_ * p_.qkv_row()).values);
      dkv_.push_back(garbage(kv_size()).values);
    }
  }

  Results run() {
    each_step([&](int step, int rank) { forward(step, rank); });
    each_step([&](int step, int rank) { backward(step, rank); });
    Results whole{p_.dout(), Values(p_.rows() * p_.heads), p_.qkv()};
    for (int rank = 0; rank < split_.context_ways; ++rank) {
      const Values dqkv = run_on(backend_, pack(true), {}, {{dkv_[rank]}}, {{dqkv_[rank]}})[0];
      put_rows(out_[rank], split_, p_.batch, p_.sequence, rank, whole.out);
      put_rows(lse_[rank], split_, p_.batch * p_.heads, p_.sequence, rank, whole.lse);
      put_rows(dqkv, split_, p_.batch, p_.sequence, rank, whole.dqkv);
    }
    return whole;
  }

 private:
  std::int64_t kv_size() const { return rows_ * 2 * p_.kv_heads * p_.head_dim; }
  PackKv pack(bool inverse) const { return {rows_, p_.heads, p_.kv_heads, p_.head_dim, inverse}; }

  void each_step(const std::function<void(int, int)>& compute) {
    for (int step = 0; step < split_.context_ways; ++step) {
      for (int rank = 0; rank < split_.context_ways; ++rank) compute(step, rank);
      send_on(kv_);
      send_on(dkv_);
    }
  }
  void forward(int step, int rank) {
    const RingAttention op{p_.batch, p_.sequence, p_.heads,   p_.kv_heads,     p_.head_dim,
                           split_,   step,        p_.dropout, p_.total_heads()};
    const auto merged = run_on(backend_, op, context_of(p_.shard, rank),
                               {{qkv_[rank]}, {kv_[rank]}}, {{out_[rank]}, {lse_[rank]}});
    out_[rank] = merged[0];
    lse_[rank] = merged[1];
  }
  void backward(int step, int rank) {
    const RingAttentionGradient op{p_.batch, p_.sequence, p_.heads,   p_.kv_heads,     p_.head_dim,
                                   split_,   step,        p_.dropout, p_.total_heads()};
    const auto sums = run_on(backend_, op, context_of(p_.shard, rank),
                             {{dout_[rank]}, {qkv_[rank]}, {kv_[rank]}, {out_[rank]}, {lse_[rank]}},
                             {{dqkv_[rank]}, {dkv_[rank]}});
    dqkv_[rank] = sums[0];
    dkv_[rank] = sums[1];
  }

  const Backend& backend_;
  const Problem p_;
  const TokenSplit split_;
  const std::int64_t rows_;
  std::vector<Values> qkv_, dout_, kv_, out_, lse_, dqkv_, dkv_;
};

TEST(ContextOps, ARingEqualsWholeAttention) {
  for (const Problem& p : {Problem{2, 24, 4, 2, 6}, Problem{1, 24, 2, 2, 3, {0.3, 5}},
                           Problem{2, 312, 2, 1, 5, {0.1, 6}}, Problem{1, 312, 3, 1, 4}}) {
    const Results whole = whole_attention(reference(), p);
    for (int ways : {1, 2, 3, 4}) {
      for (bool zigzag : {false, true}) {
        const TokenSplit split{ways, zigzag};
        expect_equal(Ring(reference(), p, split).run(), whole, 1e-12,
                     "ways " + std::to_string(ways) + (zigzag ? " zig-zag" : ""));
      }
    }
  }
}

// More queries than kernels take at once, at every step.
TEST(ContextOps, ALongRingAgreesOnAllBackends) {
  const Problem p{1, 1080, 2, 1, 4, {0.1, 6}};
  const Results whole = whole_attention(reference(), p);
  for (const Backend& backend : testing::backends()) {
    for (bool zigzag : {false, true})
      expect_equal(Ring(backend, p, {2, zigzag}).run(), whole, tolerance(backend, 4),
                   backend.text());
  }
}

TEST(ContextOps, ARingAgreesOnAllBackends) {
  const Problem p{2, 156, 4, 2, 8, {0.2, 5}};
  const Results whole = whole_attention(reference(), p);
  for (const Backend& backend : testing::backends()) {
    for (bool zigzag : {false, true}) {
      expect_equal(Ring(backend, p, {3, zigzag}).run(), whole, tolerance(backend, 4),
                   backend.text());
    }
  }
}

// Scores of earlier steps that are far larger, or smaller, than those of later ones.
TEST(ContextOps, ARingMergesScoresOfAnySize) {
  for (double size : {0.0, 40.0}) {
    for (const Backend& backend : testing::backends()) {
      const Values qkv(8 * 12, size), kv(8 * 8, 20 - size / 2);
      const RingAttention op{1, 16, 1, 1, 4, {2, false}, 0};
      const auto first = run_on(backend, op, context_of(0, 1), {{qkv}, {Values(64, size)}},
                                {garbage(32), garbage(8)});
      RingAttention second = op;
      second.step = 1;
      const auto merged =
          run_on(backend, second, context_of(0, 1), {{qkv}, {kv}}, {{first[0]}, {first[1]}});
      for (double x : merged[0]) EXPECT_TRUE(std::isfinite(x)) << backend.text();
      // All keys of a block are equal: scores are 2 * size^2 and 2 * size * (20 - size / 2).
      const double a = 2 * size * size, b = 2 * size * (20 - size / 2);
      for (int i = 0; i < 8; ++i) {
        const double wa = (i + 1) * std::exp(a - std::max(a, b));
        const double wb = 8 * std::exp(b - std::max(a, b));
        EXPECT_NEAR(merged[0][4 * i], (wa * size + wb * (20 - size / 2)) / (wa + wb), 1e-4);
        EXPECT_NEAR(merged[1][i], std::max(a, b) + std::log(wa + wb), 1e-3);
      }
    }
  }
}

// Part i of each rank's buffer goes to rank i.
std::vector<Values> all_to_all(const std::vector<Values>& sent) {
  std::vector<Values> received(sent.size());
  for (std::size_t to = 0; to < sent.size(); ++to) {
    for (const Values& buffer : sent) {
      const auto part = static_cast<std::ptrdiff_t>(buffer.size() / sent.size());
      const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(to) * part;
      received[to].insert(received[to].end(), begin, begin + part);
    }
  }
  return received;
}

// The exchange that turns rows of all heads into all rows of some heads, and back.
class Ulysses {
 public:
  Ulysses(const Backend& backend, const Problem& problem, const TokenSplit& split)
      : backend_(backend), p_(problem), split_(split) {}

  std::vector<Values> to_heads(const Values& x, std::int64_t kv_heads) const {
    std::vector<Values> parts;
    for (int rank = 0; rank < split_.context_ways; ++rank) {
      const Values rows = take_rows(x, split_, p_.batch, p_.sequence, rank);
      parts.push_back(run(heads(kv_heads, false), rows));
    }
    parts = all_to_all(parts);
    for (Values& part : parts) part = run(tokens(part, false), part);
    return parts;
  }
  Values to_rows(std::vector<Values> parts, std::int64_t kv_heads) const {
    for (Values& part : parts) part = run(tokens(part, true), part);
    parts = all_to_all(parts);
    Values whole(parts[0].size() * parts.size());
    for (int rank = 0; rank < split_.context_ways; ++rank) {
      put_rows(run(heads(kv_heads, true), parts[rank]), split_, p_.batch, p_.sequence, rank, whole);
    }
    return whole;
  }

 private:
  HeadShuffle heads(std::int64_t kv_heads, bool inverse) const {
    return {p_.rows() / split_.context_ways,
            split_.context_ways,
            p_.heads,
            kv_heads,
            p_.head_dim,
            inverse};
  }
  TokenShuffle tokens(const Values& x, bool inverse) const {
    return {p_.batch, p_.sequence, static_cast<std::int64_t>(x.size()) / p_.rows(), split_,
            inverse};
  }
  Values run(const OpKind& op, const Values& x) const {
    return run_on(backend_, op, {}, {{x}}, {garbage(static_cast<std::int64_t>(x.size()))})[0];
  }

  const Backend& backend_;
  const Problem p_;
  const TokenSplit split_;
};

TEST(ContextOps, HeadsOfAllTokensAndBackIsTheSame) {
  const Problem p{2, 16, 8, 4, 3};
  for (const Backend& backend : testing::backends()) {
    for (const TokenSplit& split :
         {TokenSplit{2}, TokenSplit{4}, TokenSplit{2, true}, TokenSplit{4, true}}) {
      const Ulysses ulysses(backend, p, split);
      expect_close(ulysses.to_rows(ulysses.to_heads(p.qkv(), p.kv_heads), p.kv_heads), p.qkv(),
                   tolerance(backend), backend.text());
    }
  }
}

TEST(ContextOps, AttentionOfHeadSharesEqualsWholeAttention) {
  const Problem p{2, 16, 8, 4, 3, {0.2, 9}};
  const Results whole = whole_attention(reference(), p);
  for (const TokenSplit& split : {TokenSplit{2}, TokenSplit{4}, TokenSplit{4, true}}) {
    const int ways = split.context_ways;
    const Ulysses ulysses(reference(), p, split);
    const auto qkv = ulysses.to_heads(p.qkv(), p.kv_heads), dout = ulysses.to_heads(p.dout(), 0);
    Problem share = p;
    share.heads /= ways;
    share.kv_heads /= ways;
    std::vector<Values> out, dqkv;
    for (int rank = 0; rank < ways; ++rank) {
      const Results part = whole_attention(reference(), share, qkv[rank], dout[rank], rank, ways);
      out.push_back(part.out);
      dqkv.push_back(part.dqkv);
    }
    expect_close(ulysses.to_rows(out, 0), whole.out, 1e-12, "out");
    expect_close(ulysses.to_rows(dqkv, p.kv_heads), whole.dqkv, 1e-12, "dqkv");
  }
}

TEST(ContextOps, AttentionDropsTheSameOnTensorRanks) {
  const Problem p{2, 20, 4, 4, 3, {0.4, 9}};
  const Results whole = whole_attention(reference(), p);
  for (int shard : {0, 1}) {
    const Problem half{2, 20, 2, 2, 3, {0.4, 9}, shard, 2};
    const Results part = whole_attention(reference(), half);
    expect_close(part.out, half.own_heads(whole.out, false), 1e-12, "out");
    expect_close(part.dqkv, half.own_heads(whole.dqkv, true), 1e-12, "dqkv");
    expect_equal(Ring(reference(), half, {2}).run(), part, 1e-12, "ring");
  }
}

// The probabilities that `heads` heads of a rank are left with: queries of 0 see all keys alike,
// and v is a unit matrix.
Values kept_probabilities(const Backend& backend, const Attention& op, const OpContext& context) {
  const std::int64_t n = op.sequence, row = (op.heads + 2) * n, rows = op.batch * n;
  Values qkv(rows * row);
  for (std::int64_t i = 0; i < rows; ++i) qkv[i * row + (op.heads + 1) * n + i % n] = 1;
  return run_on(backend, op, context, {{qkv}},
                {garbage(rows * op.heads * n), in_main(garbage(rows * op.heads))})[0];
}

TEST(ContextOps, AttentionDropsWhatTheIndexSays) {
  const std::int64_t n = 150, heads = 2;
  const Dropout dropout{0.25, 77};
  // The last of two tensor ranks, of two context ranks each, has heads 6 and 7 of 8.
  for (const auto& [shard, context_index, ways, total, first_head] :
       {std::array{0, 0, 1, 2, 0}, std::array{1, 0, 1, 4, 2}, std::array{1, 1, 2, 8, 6}}) {
    const OpContext context = context_of(shard, context_index);
    const std::uint64_t seed = mix64(context.seed + 0x9e3779b97f4a7c15ull * (context.step + 1));
    const Attention op{2, n, heads, 1, n, dropout, ways, total};
    const Values out = kept_probabilities(reference(), op, context);
    int dropped = 0;
    for (std::int64_t i = 0; i < 2 * n * heads * n; ++i) {
      const std::int64_t k = i % n, h = i / n % heads, q = i / (n * heads) % n,
                         b = i / n / heads / n;
      const std::int64_t head = (context.first_sample + b) * total + first_head + h;
      const bool keeps = random_uniform(seed, dropout.stream, (head * n + q) * n + k) >= 0.25;
      ASSERT_NEAR(out[i], k > q ? 0 : keeps / 0.75 / (q + 1), 1e-14);
      dropped += k <= q && !keeps;
    }
    EXPECT_NEAR(dropped, 0.25 * 2 * heads * n * (n + 1) / 2, 300);
    for (const Backend& backend : testing::backends()) {
      expect_close(kept_probabilities(backend, op, context), out, 1e-6, backend.text());
    }
  }
}

TEST(ContextOps, GradientThroughDropoutAgreesWithDifferences) {
  const Problem p{1, 70, 4, 2, 5, {0.3, 4}};
  const Values qkv = p.qkv(), dout = p.dout();
  const Results at = whole_attention(reference(), p);
  const auto loss = [&](const Values& x) {
    const Values out = whole_attention(reference(), p, x, dout).out;
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  for (std::uint32_t seed : {11, 12, 13}) {
    const Values direction = noise(seed, static_cast<std::int64_t>(qkv.size()));
    Values ahead = qkv, behind = qkv;
    double expected = 0;
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      ahead[i] += 1e-5 * direction[i];
      behind[i] -= 1e-5 * direction[i];
      expected += at.dqkv[i] * direction[i];
    }
    EXPECT_NEAR((loss(ahead) - loss(behind)) / 2e-5, expected, 1e-6 * std::abs(expected) + 1e-6);
  }
}

TEST(ContextOps, DropoutLeavesTheLogSumExpAlone) {
  Problem p{1, 20, 2, 1, 4};
  const Values lse = whole_attention(reference(), p).lse;
  p.dropout = {0.5, 1};
  EXPECT_EQ(whole_attention(reference(), p).lse, lse);
}

TEST(ContextOps, DropoutAgreesOnAllBackends) {
  const Problem p{2, 150, 4, 2, 8, {0.1, 3}};
  const Results whole = whole_attention(reference(), p);
  for (const Backend& backend : testing::backends()) {
    expect_equal(whole_attention(backend, p), whole, tolerance(backend, 4), backend.text());
  }
}

}  // namespace
}  // namespace mb
