// What fixtures are too small to show: many tiles, shards, large numbers, gradients by differences.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "tests/support/reference.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::expect_close;
using testing::garbage;
using testing::indices;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::scalars;
using testing::tolerance;
using testing::with_loss_scale;
using Values = std::vector<double>;

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Runs an operation everywhere and compares with fp64 on the baseline, whose results it returns.
std::vector<Values> same_everywhere(const OpKind& op, const std::vector<Operand>& reads,
                                    const std::vector<Operand>& writes, double factor = 1) {
  const auto all = testing::backends();
  const auto expected = run_on(all.front(), op, {}, reads, writes);
  for (const Backend& backend : all) {
    const auto actual = run_on(backend, op, {}, reads, writes);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      expect_close(actual[i], expected[i], tolerance(backend, factor),
                   backend.text() + " " + to_text({op}));
    }
  }
  return expected;
}

// Central differences of f along three directions against a gradient.
void expect_gradient(const std::function<Values(const Values&)>& f, const Values& x,
                     const Values& dy, const Values& gradient) {
  for (std::uint32_t seed : {11, 12, 13}) {
    const Values direction = noise(seed, x.size());
    Values ahead = x, behind = x;
    const double h = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ahead[i] += h * direction[i];
      behind[i] -= h * direction[i];
    }
    const double difference = (dot(f(ahead), dy) - dot(f(behind), dy)) / (2 * h);
    EXPECT_NEAR(dot(gradient, direction), difference, 1e-6 * std::max(1.0, std::abs(difference)));
  }
}

const Backend& reference() {
  static const Backend backend = testing::backends().front();
  return backend;
}

// One segment that a rank has for itself.
FlatSlice flat(std::int64_t n) { return {.n = n, .segments = {{0, n, true}}}; }

Values first_of(const OpKind& op, const std::vector<Operand>& reads,
                const std::vector<Operand>& writes) {
  return run_on(reference(), op, {}, reads, writes)[0];
}

TEST(CpuKernels, NormGradientsAgreeWithDifferencesAndOnAllBackends) {
  const std::int64_t rows = 9, n = 390;
  const Values x = noise(1, rows * n, 3), w = noise(2, n), b = noise(3, n), dy = noise(4, rows * n);
  for (NormKind kind : {NormKind::layer, NormKind::rms}) {
    const Norm op{kind, rows, n, 1e-5f};
    const std::vector<Operand> outputs = {garbage(rows * n), garbage(rows), testing::zeros(rows)};
    const auto saved = same_everywhere(op, {{x}, {w}, {b}}, outputs);
    std::vector<Operand> reads = {{dy}, {x}, {w}, {saved[1]}};
    if (kind == NormKind::layer) reads.push_back({saved[2]});
    const auto d = same_everywhere(NormGradient{kind, rows, n, false, false}, reads,
                                   {garbage(rows * n), garbage(n), testing::zeros(n)}, 4);
    expect_gradient(
        [&](const Values& v) {
          return first_of(op, {{v}, {w}, {b}}, outputs);
        },
        x, dy, d[0]);
    expect_gradient(
        [&](const Values& v) {
          return first_of(op, {{x}, {v}, {b}}, outputs);
        },
        w, dy, d[1]);
    if (kind == NormKind::rms) continue;
    expect_gradient(
        [&](const Values& v) {
          return first_of(op, {{x}, {w}, {v}}, outputs);
        },
        b, dy, d[2]);
  }
}

TEST(CpuKernels, ActivationGradientsAgreeWithDifferencesAndOnAllBackends) {
  const std::int64_t rows = 3, n = 500;
  const Values u = noise(1, rows * n, 12), gate_up = noise(2, rows * 2 * n, 12),
               dy = noise(3, rows * n);
  const auto y = garbage(rows * n);
  same_everywhere(Gelu{rows, n}, {{u}}, {y});
  const auto du = same_everywhere(GeluGradient{rows, n}, {{dy}, {u}}, {y});
  expect_gradient(
      [&](const Values& v) {
        return first_of(Gelu{rows, n}, {{v}}, {y});
      },
      u, dy, du[0]);
  same_everywhere(Swiglu{rows, n}, {{gate_up}}, {y}, 2);
  const auto d =
      same_everywhere(SwigluGradient{rows, n}, {{dy}, {gate_up}}, {garbage(rows * 2 * n)}, 4);
  expect_gradient(
      [&](const Values& v) {
        return first_of(Swiglu{rows, n}, {{v}}, {y});
      },
      gate_up, dy, d[0]);
}

TEST(CpuKernels, ActivationsOfHugeInputsAreFiniteOrTheInput) {
  for (const Backend& backend : testing::backends()) {
    const Values u = {-1e30, -200, -50, 0, 50, 200, 1e4};
    const auto n = static_cast<std::int64_t>(u.size());
    const auto y = run_on(backend, Gelu{1, n}, {}, {{u}}, {garbage(n)})[0];
    expect_close(y, {0, 0, 0, 0, 50, 200, 1e4}, 1e-6, backend.text());
    const auto slope =
        run_on(backend, GeluGradient{1, n - 1}, {},
               {{Values(n - 1, 1.0)}, {Values(u.begin() + 1, u.end())}}, {garbage(n - 1)})[0];
    expect_close(slope, {0, 0, 0.5, 1, 1, 1}, 1e-6, backend.text());
  }
}

TEST(CpuKernels, NotANumberIsKept) {
  const Values u(40, std::numeric_limits<double>::quiet_NaN());
  for (const Backend& backend : testing::backends()) {
    const auto y = run_on(backend, Gelu{1, 40}, {}, {{u}}, {testing::zeros(40)});
    for (double value : y[0]) EXPECT_TRUE(std::isnan(value)) << backend.text();
  }
}

TEST(CpuKernels, AttentionOverSeveralTilesAgreesWithDifferencesAndOnAllBackends) {
  for (const auto& [sequence, heads, kv_heads, head_dim] :
       {std::array<std::int64_t, 4>{150, 4, 2, 8}, {128, 1, 1, 64}, {65, 3, 1, 5}}) {
    const std::int64_t batch = 2, rows = batch * sequence;
    const std::int64_t size = rows * (heads + 2 * kv_heads) * head_dim;
    const Attention op{batch, sequence, heads, kv_heads, head_dim};
    const Values qkv = noise(1, size, 2), dout = noise(2, rows * heads * head_dim);
    const std::vector<Operand> outputs = {garbage(rows * heads * head_dim), garbage(rows * heads)};
    const auto saved = same_everywhere(op, {{qkv}}, outputs);
    const auto d = same_everywhere(AttentionGradient{batch, sequence, heads, kv_heads, head_dim},
                                   {{dout}, {qkv}, {saved[0]}, {saved[1]}}, {garbage(size)});
    expect_gradient([&](const Values& v) { return first_of(op, {{v}}, outputs); }, qkv, dout, d[0]);
  }
}

TEST(CpuKernels, AttentionIgnoresLaterTokens) {
  const Attention op{1, 100, 1, 1, 4};
  Values qkv = noise(1, 100 * 12);
  const auto before = first_of(op, {{qkv}}, {garbage(400), garbage(100)});
  for (std::size_t i = 12 * 70; i < qkv.size(); ++i) qkv[i] = 5;
  const auto after = first_of(op, {{qkv}}, {garbage(400), garbage(100)});
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 4 * 70, after.begin()));
  EXPECT_NE(before[4 * 70], after[4 * 70]);
}

TEST(CpuKernels, SumsOfManyRowsAgreeOnAllBackends) {
  const std::int64_t rows = 203, n = 45;
  const Values a = noise(1, rows * n), b = noise(2, rows * n), bias = noise(3, n);
  const auto sums = same_everywhere(BiasGradient{rows, n, true}, {{a}}, {{bias}}, 4);
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = bias[i];
    for (std::int64_t r = 0; r < rows; ++r) sum += a[r * n + i];
    EXPECT_NEAR(sums[0][i], sum, 1e-12);
  }
  const auto y = same_everywhere(Add{rows, n, true}, {{a}, {b}, {bias}}, {garbage(rows * n)});
  EXPECT_DOUBLE_EQ(y[0][n + 1], a[n + 1] + b[n + 1] + bias[1]);
  const auto plain = same_everywhere(Add{rows, n, false}, {{a}, {b}}, {garbage(rows * n)});
  EXPECT_DOUBLE_EQ(plain[0][n + 1], a[n + 1] + b[n + 1]);
  const GradientNorm norm{flat(rows * n), false};
  EXPECT_NEAR(same_everywhere(norm, {{a}}, {scalars({1, 2, 3})})[0][2], 3 + dot(a, a), 1e-9);
}

TEST(CpuKernels, OptimizersAgreeOnAllBackends) {
  const std::int64_t n = 1003;
  const std::vector<Operand> reads = {{noise(1, n, 8)}, scalars({0, 4, 900, 0, 1, 0, 0})};
  const Values v = [&] {
    Values values = noise(4, n);
    for (double& value : values) value = std::abs(value);
    return values;
  }();
  for (bool moments : {false, true}) {
    const UpdateParameters update{flat(n), false, false, moments, 0.01, 0.9, 0.99, 1e-8, 0.1, 1.0};
    same_everywhere(update, reads, {{noise(2, n)}, {noise(3, n)}, {v}});
  }
}

TEST(CpuKernels, TheClipScaleDividesByTheTokensAndByAtLeastOne) {
  const auto sgd = [](double clip, Values sums) {
    sums.insert(sums.end(), {0, 1, 0, 0});
    const UpdateParameters update{.slice = flat(1), .learning_rate = 1, .clip = clip};
    return 0 - first_of(update, {{{1.0}}, scalars(sums)}, {{{0.0}}})[0];
  };
  EXPECT_DOUBLE_EQ(sgd(0, {0, 4, 1e6}), 0.25);
  EXPECT_DOUBLE_EQ(sgd(0, {0, 0, 1e6}), 1);
  // Norm sqrt(1600) / 4 = 10.
  EXPECT_DOUBLE_EQ(sgd(2.5, {0, 4, 1600}), 0.25 * 2.5 / (10 + 1e-6));
  EXPECT_DOUBLE_EQ(sgd(11, {0, 4, 1600}), 0.25);
}

// The columns of `shard`, n wide; beyond the vocabulary numbers that would show if they took part.
Values columns_of(const Values& full, std::int64_t rows, std::int64_t vocabulary, std::int64_t n,
                  std::int64_t shard) {
  Values part(rows * n, 60.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < n && shard * n + j < vocabulary; ++j) {
      part[r * n + j] = full[r * vocabulary + shard * n + j];
    }
  }
  return part;
}

struct Loss {
  Values scalars, dlogits;  // dlogits[rows, vocabulary]
};

// Cross-entropy over `shards` of n columns, with the reductions that ranks would make.
Loss sharded_loss(const Backend& backend, const Values& logits, const Values& labels,
                  std::int64_t rows, std::int64_t vocabulary, int shards, std::int64_t n) {
  std::vector<Values> parts;
  Values max(rows, -std::numeric_limits<double>::infinity()), sums(2 * rows, 0);
  for (int s = 0; s < shards; ++s) {
    parts.push_back(columns_of(logits, rows, vocabulary, n, s));
    const auto local = run_on(backend, VocabularyMax{rows, n, vocabulary}, {.shard_index = s},
                              {{parts[s]}}, {garbage(rows)})[0];
    for (std::int64_t r = 0; r < rows; ++r) max[r] = std::max(max[r], local[r]);
  }
  for (int s = 0; s < shards; ++s) {
    const auto local = run_on(backend, VocabularySums{rows, n, vocabulary}, {.shard_index = s},
                              {{parts[s]}, indices(labels), {max}}, {garbage(2 * rows)})[0];
    for (std::int64_t i = 0; i < 2 * rows; ++i) sums[i] += local[i];
  }
  Loss loss{Values(3, 0), Values(rows * vocabulary)};
  for (int s = 0; s < shards; ++s) {
    loss.scalars = run_on(backend, CrossEntropy{rows}, {.shard_index = s},
                          {indices(labels), {sums}}, {scalars(loss.scalars)})[0];
    const auto d = run_on(backend, CrossEntropyGradient{rows, n, vocabulary}, {.shard_index = s},
                          {indices(labels), {max}, {sums}, with_loss_scale(1)}, {{parts[s]}})[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        if (s * n + j < vocabulary) {
          loss.dlogits[r * vocabulary + s * n + j] = d[r * n + j];
        } else {
          EXPECT_EQ(d[r * n + j], 0) << "padding";
        }
      }
    }
  }
  return loss;
}

TEST(CpuKernels, ShardedCrossEntropyEqualsTheUnshardedOne) {
  const std::int64_t rows = 6, vocabulary = 97;
  const Values logits = noise(1, rows * vocabulary, 20), labels = {0, 96, 48, -1, 50, 25};
  const Loss whole = sharded_loss(reference(), logits, labels, rows, vocabulary, 1, vocabulary);
  EXPECT_EQ(whole.scalars[1], 5);
  for (const Backend& backend : testing::backends()) {
    // Two shards of 49, four of 25; of 48 four, the last two of which hold one entry and none.
    for (const auto& [shards, n] : {std::pair{1, 100}, {2, 49}, {4, 25}, {4, 48}}) {
      const Loss loss = sharded_loss(backend, logits, labels, rows, vocabulary, shards, n);
      const std::string what = backend.text() + " shards " + std::to_string(shards);
      expect_close(loss.scalars, whole.scalars, tolerance(backend), what);
      expect_close(loss.dlogits, whole.dlogits, tolerance(backend), what);
    }
  }
}

TEST(CpuKernels, CrossEntropyGradientAgreesWithDifferences) {
  const std::int64_t rows = 3, vocabulary = 20;
  const Values logits = noise(1, rows * vocabulary, 4), labels = {3, -1, 19};
  const auto loss = [&](const Values& x) {
    return Values{sharded_loss(reference(), x, labels, rows, vocabulary, 2, 11).scalars[0]};
  };
  expect_gradient(loss, logits, {1.0},
                  sharded_loss(reference(), logits, labels, rows, vocabulary, 2, 11).dlogits);
}

TEST(CpuKernels, ShardsOfAnEmbeddingSumToTheWhole) {
  const std::int64_t rows = 5, n = 4;
  const Values table = noise(1, 6 * n), dy = noise(2, rows * n);
  const Operand tokens = indices({0, 5, 2, 3, 5});
  for (const Backend& backend : testing::backends()) {
    const Values whole =
        run_on(backend, Embedding{rows, n, 6}, {}, {tokens, {table}}, {garbage(rows * n)})[0];
    const Values d_whole = run_on(backend, EmbeddingGradient{rows, n, 6, false}, {}, {tokens, {dy}},
                                  {garbage(6 * n)})[0];
    Values sum(rows * n, 0), d_table;
    for (int shard = 0; shard < 2; ++shard) {
      const Values part(table.begin() + shard * 3 * n, table.begin() + (shard + 1) * 3 * n);
      const OpContext context{.shard_index = shard};
      const auto y =
          run_on(backend, Embedding{rows, n, 3}, context, {tokens, {part}}, {garbage(rows * n)})[0];
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
      const auto d = run_on(backend, EmbeddingGradient{rows, n, 3, false}, context, {tokens, {dy}},
                            {garbage(3 * n)})[0];
      d_table.insert(d_table.end(), d.begin(), d.end());
    }
    EXPECT_EQ(sum, whole);
    EXPECT_EQ(d_table, d_whole);
  }
}

class CountingBatches : public BatchSource {
 public:
  void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    for (std::int64_t i = 0; i < batch * sequence; ++i) {
      tokens[i] = static_cast<std::int32_t>(1000 * step + 100 * data_index + 10 * micro_batch + i);
      labels[i] = tokens[i] + 1;
    }
  }
};

TEST(CpuKernels, LoadBatchAsksForTheStepRankAndMicroBatch) {
  const CountingBatches batches;
  const auto loaded = run_on(reference(), LoadBatch{1, 2},
                             {.step = 3, .micro_batch = 4, .data_index = 2, .batches = &batches},
                             {}, {indices({0, 0}), indices({0, 0})});
  EXPECT_EQ(loaded[0], (Values{3240, 3241}));
  EXPECT_EQ(loaded[1], (Values{3241, 3242}));
}

TEST(CpuKernels, AttentionOnEightThreadsGetsTheBitsOfOne) {
  const Attention op{1, 80, 2, 1, 8};
  const Values qkv = noise(1, 80 * 32);
  for (const Backend& backend : testing::backends()) {
    const auto compute = [&] {
      return run_on(backend, op, {}, {{qkv}}, {garbage(80 * 16), garbage(160)});
    };
    const auto expected = compute();
    std::vector<std::vector<Values>> results(8);
    std::vector<std::thread> threads;
    for (auto& result : results) threads.emplace_back([&] { result = compute(); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : results) EXPECT_EQ(result, expected) << backend.text();
  }
}

}  // namespace
}  // namespace mb
