// Operations against PyTorch in fp64 (tests/reference/ops_*.txt), on every backend.
#include <gtest/gtest.h>

#include "tests/support/reference.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::Case;
using testing::expect_close;
using testing::garbage;
using testing::indices;
using testing::load_cases;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::scalars;
using testing::tolerance;
using testing::with_loss_scale;
using Values = std::vector<double>;

Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// f(backend, case) for all backends and all cases of a name.
template <class F>
void for_all(const std::string& file, const std::string& name, F f) {
  for (const Backend& backend : testing::backends()) {
    SCOPED_TRACE(backend.text());
    for (const Case& c : load_cases(file, name)) f(backend, c);
  }
}

void check_norm(const Backend& backend, const Case& c, NormKind kind) {
  const bool layer = kind == NormKind::layer;
  const auto rows = c.sizes.at("rows"), n = c.sizes.at("n");
  Values x = noise(1, rows * n, 2);
  for (double& value : x) value += 0.5;
  const Values w = noise(2, n), b = noise(3, n), dy = noise(4, rows * n), r = noise(5, rows * n);
  const auto forward = run_on(backend, Norm{kind, rows, n, 1e-5f}, {}, {{x}, {w}, {b}},
                              {garbage(rows * n), garbage(rows), garbage(rows)});
  const double close = tolerance(backend, 10);
  expect_close(forward[0], c.tensors.at("y"), close, "y");

  std::vector<Operand> reads = {{dy}, {x}, {w}, {forward[1]}};
  if (layer) reads.push_back({forward[2]});
  reads.push_back({r});
  auto backward = run_on(backend, NormGradient{kind, rows, n, true, false}, {}, reads,
                         {garbage(rows * n), garbage(n), garbage(n)});
  expect_close(backward[0], c.tensors.at("dx"), close, "dx");
  expect_close(backward[1], c.tensors.at("dw"), close, "dw");
  if (layer) expect_close(backward[2], c.tensors.at("db"), close, "db");

  // Without the residual, and added to what is there.
  reads.pop_back();
  backward = run_on(backend, NormGradient{kind, rows, n, false, true}, {}, reads,
                    {garbage(rows * n), {w}, {b}});
  expect_close(plus(backward[0], r), c.tensors.at("dx"), close, "dx without residual");
  expect_close(backward[1], plus(c.tensors.at("dw"), w), close, "dw accumulated");
  if (layer) expect_close(backward[2], plus(c.tensors.at("db"), b), close, "db accumulated");
}

TEST(CpuOps, LayerNormEqualsPyTorch) {
  for_all("ops_norm.txt", "layer",
          [](const auto& backend, const Case& c) { check_norm(backend, c, NormKind::layer); });
}

TEST(CpuOps, RmsNormEqualsPyTorch) {
  for_all("ops_norm.txt", "rms",
          [](const auto& backend, const Case& c) { check_norm(backend, c, NormKind::rms); });
}

TEST(CpuOps, GeluEqualsPyTorch) {
  for_all("ops_activation.txt", "gelu", [](const Backend& backend, const Case& c) {
    const auto rows = c.sizes.at("rows"), n = c.sizes.at("n");
    const Values u = noise(1, rows * n, 6), dy = noise(2, rows * n);
    const auto y = run_on(backend, Gelu{rows, n}, {}, {{u}}, {garbage(rows * n)});
    expect_close(y[0], c.tensors.at("y"), tolerance(backend), "y");
    const auto du = run_on(backend, GeluGradient{rows, n}, {}, {{dy}, {u}}, {garbage(rows * n)});
    expect_close(du[0], c.tensors.at("du"), tolerance(backend), "du");
  });
}

TEST(CpuOps, SwigluEqualsPyTorch) {
  for_all("ops_activation.txt", "swiglu", [](const Backend& backend, const Case& c) {
    const auto rows = c.sizes.at("rows"), n = c.sizes.at("n");
    const Values gate_up = noise(3, rows * 2 * n, 6), dy = noise(2, rows * n);
    const auto y = run_on(backend, Swiglu{rows, n}, {}, {{gate_up}}, {garbage(rows * n)});
    expect_close(y[0], c.tensors.at("y"), tolerance(backend), "y");
    const auto d =
        run_on(backend, SwigluGradient{rows, n}, {}, {{dy}, {gate_up}}, {garbage(rows * 2 * n)});
    expect_close(d[0], c.tensors.at("dgate_up"), tolerance(backend), "dgate_up");
  });
}

TEST(CpuOps, AttentionEqualsPyTorchWithGroupedKeys) {
  for_all("ops_attention.txt", "attention", [](const Backend& backend, const Case& c) {
    const auto batch = c.sizes.at("batch"), sequence = c.sizes.at("sequence"),
               heads = c.sizes.at("heads"), kv_heads = c.sizes.at("kv_heads"),
               head_dim = c.sizes.at("head_dim");
    const auto rows = batch * sequence, width = (heads + 2 * kv_heads) * head_dim;
    const Values qkv = noise(1, rows * width, 2), dout = noise(2, rows * heads * head_dim);
    const auto forward = run_on(backend, Attention{batch, sequence, heads, kv_heads, head_dim}, {},
                                {{qkv}}, {garbage(rows * heads * head_dim), garbage(rows * heads)});
    expect_close(forward[0], c.tensors.at("out"), tolerance(backend), "out");
    expect_close(forward[1], c.tensors.at("lse"), tolerance(backend), "lse");
    const auto backward =
        run_on(backend, AttentionGradient{batch, sequence, heads, kv_heads, head_dim}, {},
               {{dout}, {qkv}, {forward[0]}, {forward[1]}}, {garbage(rows * width)});
    expect_close(backward[0], c.tensors.at("dqkv"), tolerance(backend), "dqkv");
  });
}

TEST(CpuOps, RotaryEqualsPyTorchAndItsInverseUndoesIt) {
  for_all("ops_attention.txt", "rotary", [](const Backend& backend, const Case& c) {
    Rotary op{c.sizes.at("batch"),
              c.sizes.at("sequence"),
              c.sizes.at("heads"),
              c.sizes.at("kv_heads"),
              c.sizes.at("head_dim"),
              500.0f,
              false};
    const Values& expected = c.tensors.at("qkv");
    const Values qkv = noise(1, expected.size(), 2);
    const auto turned = run_on(backend, op, {}, {}, {{qkv}});
    expect_close(turned[0], expected, tolerance(backend), "qkv");
    op.inverse = true;
    expect_close(run_on(backend, op, {}, {}, {{turned[0]}})[0], qkv, tolerance(backend), "back");
  });
}

TEST(CpuOps, EmbeddingAndPositionsEqualPyTorch) {
  for_all("ops_embedding.txt", "embedding", [](const Backend& backend, const Case& c) {
    const auto batch = c.sizes.at("batch"), sequence = c.sizes.at("sequence"), n = c.sizes.at("n"),
               vocabulary = c.sizes.at("vocabulary");
    const auto rows = batch * sequence;
    const Values table = noise(1, vocabulary * n), positions = noise(2, sequence * n),
                 dy = noise(4, rows * n);
    const Operand tokens = indices(c.tensors.at("tokens"));
    const double close = tolerance(backend);
    auto y = run_on(backend, Embedding{rows, n, vocabulary}, {}, {tokens, {table}},
                    {garbage(rows * n)})[0];
    y = run_on(backend, AddPositions{batch, sequence, n}, {}, {{positions}}, {{y}})[0];
    expect_close(y, c.tensors.at("y"), close, "y");
    for (bool accumulate : {false, true}) {
      const Values d_table =
          run_on(backend, EmbeddingGradient{rows, n, vocabulary, accumulate}, {}, {tokens, {dy}},
                 {accumulate ? Operand{table} : garbage(vocabulary * n)})[0];
      const Values& expected = c.tensors.at("dtable");
      expect_close(d_table, accumulate ? plus(expected, table) : expected, close, "dtable");
      const Values d_positions =
          run_on(backend, PositionGradient{batch, sequence, n, accumulate}, {}, {{dy}},
                 {accumulate ? Operand{positions} : garbage(sequence * n)})[0];
      const Values& sums = c.tensors.at("dpositions");
      expect_close(d_positions, accumulate ? plus(sums, positions) : sums, close, "dpositions");
    }
  });
}

TEST(CpuOps, CrossEntropyEqualsPyTorchAndLeavesOutLabelsBelowZero) {
  for_all("ops_loss.txt", "cross_entropy", [](const Backend& backend, const Case& c) {
    const auto rows = c.sizes.at("rows"), n = c.sizes.at("vocabulary");
    const Values logits = noise(1, rows * n, 5);
    const Operand labels = indices(c.tensors.at("labels"));
    const auto max = run_on(backend, VocabularyMax{rows, n, n}, {}, {{logits}}, {garbage(rows)});
    const auto sums = run_on(backend, VocabularySums{rows, n, n}, {}, {{logits}, labels, {max[0]}},
                             {garbage(2 * rows)});
    const auto totals =
        run_on(backend, CrossEntropy{rows}, {}, {labels, {sums[0]}}, {scalars({1, 2, 3})});
    const Values loss = {1 + c.tensors.at("loss")[0], 2 + c.tensors.at("valid")[0], 3};
    expect_close(totals[0], loss, tolerance(backend), "scalars");
    const auto gradient = run_on(backend, CrossEntropyGradient{rows, n, n}, {},
                                 {labels, {max[0]}, {sums[0]}, with_loss_scale(1)}, {{logits}});
    expect_close(gradient[0], c.tensors.at("dlogits"), tolerance(backend), "dlogits");
  });
}

TEST(CpuOps, OptimizersEqualPyTorchOverThreeStepsWithAndWithoutClipping) {
  for (const char* name : {"adamw", "sgd"}) {
    for_all("ops_optimizer.txt", name, [&](const Backend& backend, const Case& c) {
      const auto n = c.sizes.at("n");
      const FlatSlice slice{.n = n, .segments = {{0, n, true}}};
      const UpdateParameters update{.slice = slice,
                                    .moments = name == std::string("adamw"),
                                    .learning_rate = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .epsilon = 1e-8,
                                    .weight_decay = 0.1,
                                    .clip = c.sizes.at("clip") / 1000.0};
      std::vector<Operand> state = {{noise(1, n)}, testing::zeros(n), testing::zeros(n)};
      for (std::int64_t step = 0; step < 3; ++step) {
        const Values gradient = noise(2 + step, n, 10);
        const auto sums = run_on(backend, GradientNorm{slice, false}, {}, {{gradient}},
                                 {scalars({0, 5, 0, 0, 1, 0, 0})})[0];
        const auto next =
            run_on(backend, update, {.step = step}, {{gradient}, scalars(sums)}, state);
        for (int i = 0; i < 3; ++i) state[i].values = next[i];
      }
      // PyTorch clips by clip / (norm + 1e-6) too.
      expect_close(state[0].values, c.tensors.at("parameter"), tolerance(backend), name);
    });
  }
}

}  // namespace
}  // namespace mb
