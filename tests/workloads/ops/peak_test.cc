#include "workloads/ops/peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "workloads/base/error.h"

namespace mb {
namespace {

TEST(Peak, RatesAreFiniteAndPositive) {
  for (double rate : {measure_fma_gflops(DType::fp32), measure_fma_gflops(DType::fp64),
                      measure_triad_gb_per_s()}) {
    EXPECT_TRUE(std::isfinite(rate));
    EXPECT_GT(rate, 0);
  }
}

TEST(Peak, AnElementTypeWithoutKernelsIsAnError) {
  EXPECT_THROW(measure_fma_gflops(DType::bf16), Error);
}

}  // namespace
}  // namespace mb
