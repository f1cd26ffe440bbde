// A kernel as the cost model sees it.
#pragma once

#include <cstdint>

#include "workloads/ops/op.h"

namespace mb {

// Of `batch` products [m, k] x [k, n]; k = 0: not known.
struct Product {
  double batch = 1, m = 0, n = 0, k = 0;
};
inline Product product_of(const Matmul& op) {
  const auto of = [](std::int64_t n) { return static_cast<double>(n); };
  return {1, of(op.m), of(op.n), of(op.k)};
}

struct Kernel {
  enum class Unit : std::uint8_t { matmul, attention, memory };
  Unit unit = Unit::memory;
  double flops = 0, bytes = 0;
  Product product = {};  // of a matmul
};

}  // namespace mb
