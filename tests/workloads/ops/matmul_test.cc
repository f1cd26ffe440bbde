#include "workloads/ops/matmul.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/reference.h"

namespace mb {
namespace {

using testing::Backend;
using testing::noise;

// A triple loop. Operands as Matmul lists them, `c` being the values before.
std::vector<double> naive(const Matmul& op, const std::vector<double>& a,
                          const std::vector<double>& b, const std::vector<double>& bias,
                          std::vector<double> c) {
  for (std::int64_t i = 0; i < op.m; ++i) {
    for (std::int64_t j = 0; j < op.n; ++j) {
      double sum = op.bias ? bias[j] : 0;
      for (std::int64_t p = 0; p < op.k; ++p) {
        sum += a[op.transpose_a ? p * op.m + i : i * op.k + p] *
               b[op.transpose_b ? j * op.k + p : p * op.n + j];
      }
      c[i * op.n + j] = sum + (op.accumulate ? c[i * op.n + j] : 0);
    }
  }
  return c;
}

// All 16 combinations of flags.
std::vector<Matmul> variants(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<Matmul> result;
  for (int flags = 0; flags < 16; ++flags) {
    result.push_back(
        {m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0});
  }
  return result;
}

void expect_matches_naive(const Backend& backend, const Matmul& op) {
  const auto a = noise(1, op.m * op.k), b = noise(2, op.k * op.n), bias = noise(3, op.n);
  auto c = testing::garbage(op.m * op.n);
  if (op.accumulate) c.values = noise(4, op.m * op.n);
  const auto expected = naive(op, a, b, bias, c.values);
  const auto actual = run_on(backend, op, {}, {{a}, {b}, {bias}}, {c})[0];
  testing::expect_close(actual, expected, testing::tolerance(backend, 1 + op.k / 100.0),
                        backend.text() + " " + to_text({op}));
}

TEST(Matmul, EqualsATripleLoopForOddShapesAndAllFlags) {
  for (const Backend& backend : testing::backends()) {
    for (std::int64_t m : {1, 5, 13, 49}) {
      for (std::int64_t n : {1, 7, 33, 65}) {
        for (std::int64_t k : {1, 9, 64}) {
          for (const Matmul& op : variants(m, n, k)) expect_matches_naive(backend, op);
        }
      }
    }
  }
}

TEST(Matmul, EqualsATripleLoopAcrossTheBlocksOfTheBuiltInKernel) {
  for (const Backend& backend : testing::backends()) {
    for (const Matmul& op : variants(150, 40, 401)) expect_matches_naive(backend, op);
    expect_matches_naive(backend, {7, 2100, 5, false, true, true, true});
  }
}

TEST(Matmul, EqualsATripleLoopWhereItIsComputedInParts) {
  for (const Backend& backend : testing::backends()) {
    expect_matches_naive(backend, {768, 65, 3, true, false, true, true});
    expect_matches_naive(backend, {832, 33, 3, true, true, false, false});
    expect_matches_naive(backend, {9, 1536, 20, false, false, true, false});
    expect_matches_naive(backend, {448, 832, 2, true, false, true, false});
  }
}

TEST(Matmul, EqualsPyTorchsLinearLayer) {
  for (const Backend& backend : testing::backends()) {
    for (const auto& c : testing::load_cases("ops_linear.txt", "linear")) {
      const auto m = c.sizes.at("m"), n = c.sizes.at("n"), k = c.sizes.at("k");
      const auto x = noise(1, m * k), w = noise(2, n * k), b = noise(3, n), dy = noise(4, m * n);
      const double tolerance = testing::tolerance(backend);
      const auto y = run_on(backend, Matmul{m, n, k, false, true, true, false}, {}, {{x}, {w}, {b}},
                            {testing::garbage(m * n)});
      testing::expect_close(y[0], c.tensors.at("y"), tolerance, "y");
      const auto dx = run_on(backend, Matmul{m, k, n, false, false, false, false}, {}, {{dy}, {w}},
                             {testing::garbage(m * k)});
      testing::expect_close(dx[0], c.tensors.at("dx"), tolerance, "dx");
      const auto dw = run_on(backend, Matmul{n, k, m, true, false, false, true}, {}, {{dy}, {x}},
                             {testing::zeros(n * k)});
      testing::expect_close(dw[0], c.tensors.at("dw"), tolerance, "dw");
      const auto db = run_on(backend, BiasGradient{m, n, false}, {}, {{dy}}, {testing::garbage(n)});
      testing::expect_close(db[0], c.tensors.at("db"), tolerance, "db");
    }
  }
}

TEST(Matmul, EightThreadsAtOnceGetTheBitsOfOne) {
  const std::vector<Matmul> ops = {{33, 65, 70, false, true, true, false},
                                   {64, 64, 64, true, false, false, true},
                                   {128, 48, 31, false, false, false, false}};
  for (const Backend& backend : testing::backends()) {
    const auto compute = [&](const Matmul& op) {
      return run_on(backend, op, {},
                    {{noise(1, op.m * op.k)}, {noise(2, op.k * op.n)}, {noise(3, op.n)}},
                    {{noise(4, op.m * op.n)}})[0];
    };
    std::vector<std::vector<double>> expected;
    for (const Matmul& op : ops) expected.push_back(compute(op));
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 12; ++i) {
          const std::size_t which = (i + t) % ops.size();
          if (compute(ops[which]) != expected[which]) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << backend.text();
  }
}

}  // namespace
}  // namespace mb
