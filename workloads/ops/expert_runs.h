// The rows of experts that a rank has received, run by run, and their products. `counts` are on the
// host, or null where all runs have as many rows. For kernels of any device.
#pragma once

#include <cstdint>

#include "workloads/ops/matmul.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

// f(expert, first row, rows, source) for each run of an expert's rows, empty ones too. The rows of
// all sources are one run if there is one expert.
template <class F>
static void for_each_expert_run(const ExpertRows& r, const std::int32_t* counts, F f) {
  const std::int64_t sources = r.experts == 1 ? 1 : r.sources, joined = r.sources / sources;
  std::int64_t first = 0;
  for (std::int64_t source = 0; source < sources; ++source) {
    for (std::int64_t expert = 0; expert < r.experts; ++expert) {
      std::int64_t rows = counts ? 0 : joined * r.fixed;
      for (std::int64_t i = 0; counts && i < joined; ++i) rows += *counts++;
      f(expert, first, rows, source);
      first += rows;
    }
  }
}

static inline std::int64_t rows_there(const ExpertRows& r, const std::int32_t* counts) {
  std::int64_t rows = 0;
  for_each_expert_run(r, counts, [&](auto, auto, std::int64_t count, auto) { rows += count; });
  return rows;
}

// A backend keeps what it prepares for each shape of a product. So that counts, which differ from
// step to step, make few shapes, f(first row, rows) has a multiple of 64 rows first, then the rest.
template <class F>
static void in_few_shapes(std::int64_t first, std::int64_t rows, bool fixed, F f) {
  const std::int64_t whole = fixed ? rows : rows / 64 * 64;
  if (whole > 0) f(first, whole);
  if (whole < rows) f(first + whole, rows - whole);
}

// y = x w[e]^T, or the input's gradient x w[e], w being stored [n, k]: rows of x to rows of y.
template <class X, class Y, class Product>
static void multiply_rows(const ExpertMatmul& op, const std::int32_t* counts, const X* x,
                          const X* w, Y* y, Product product) {
  const bool forward = op.product == ExpertProduct::forward;
  const std::int64_t from = forward ? op.k : op.n, to = forward ? op.n : op.k;
  for_each_expert_run(op.rows, counts, [&](auto expert, auto begin, auto count, auto) {
    in_few_shapes(begin, count, !counts, [&](std::int64_t first, std::int64_t rows) {
      product({.m = rows,
               .n = to,
               .k = from,
               .lda = from,
               .ldb = op.k,
               .ldc = to,
               .transpose_b = forward},
              x + first * from, w + expert * op.n * op.k, y + first * to);
    });
  });
}

// dw[e] (+)= dy^T x; zero(first, n) where no row comes.
template <class X, class Y, class Product, class Zero>
static void multiply_weights(const ExpertMatmul& op, const std::int32_t* counts, const X* dy,
                             const X* x, Y* dw, Product product, Zero zero) {
  const std::int64_t size = op.n * op.k;
  for_each_expert_run(op.rows, counts, [&](auto expert, auto begin, auto count, auto source) {
    bool accumulate = op.accumulate || source > 0;
    if (!accumulate && count == 0) zero(dw + expert * size, size);
    in_few_shapes(begin, count, !counts, [&](std::int64_t first, std::int64_t rows) {
      product({.m = op.n,
               .n = op.k,
               .k = rows,
               .lda = op.n,
               .ldb = op.k,
               .ldc = op.k,
               .transpose_a = true,
               .accumulate = accumulate},
              dy + first * op.n, x + first * op.k, dw + expert * size);
      accumulate = true;
    });
  });
}

}  // namespace
}  // namespace mb
