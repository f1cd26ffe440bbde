#include "workloads/ops/peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "workloads/base/error.h"

namespace mb {
namespace {

TEST(Peak, RatesAreFiniteAndPositive) {
  for (DType dtype : {DType::fp32, DType::fp64}) {
    const Matmul op{64, 64, 64, false, true, true, false};
    for (double rate : {measure_fma_gflops(dtype), measure_matmul_gflops(op, dtype)}) {
      EXPECT_TRUE(std::isfinite(rate));
      EXPECT_GT(rate, 0);
    }
  }
}

TEST(Peak, AnElementTypeWithoutKernelsIsAnError) {
  EXPECT_THROW(measure_fma_gflops(DType::bf16), Error);
  EXPECT_THROW(measure_matmul_gflops({8, 8, 8, false, false, false, false}, DType::bf16), Error);
}

}  // namespace
}  // namespace mb
