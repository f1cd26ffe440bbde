#include "workloads/ops/peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error.h"
#include "workloads/base/error.h"
#include "workloads/ops/cpu_isa.h"

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

TEST(Bandwidth, IsFiniteAndPositiveForAllPatternsAndStores) {
  const Bandwidth memory(2, 1 << 20);
  for (const auto pattern : {Bandwidth::Pattern::triad, Bandwidth::Pattern::copy}) {
    for (const auto stores : {Stores::ordinary, Stores::streaming}) {
      const double rate = memory.gb_per_s(pattern, stores, 3);
      EXPECT_TRUE(std::isfinite(rate));
      EXPECT_GT(rate, 0);
    }
  }
}

TEST(Bandwidth, ThatCannotBeMeasuredIsAnError) {
  EXPECT_EQ(message_of([] { Bandwidth(0, 64); }),
            "bandwidth is measured by one thread or more, not 0");
  EXPECT_EQ(message_of([] { Bandwidth(2, 127); }),
            "an array of 127 bytes for 2 threads: give 64 or more for each");
  EXPECT_EQ(message_of([] { Bandwidth(1, 64).gb_per_s({}, {}, 0); }),
            "bandwidth wants one try or more, not 0");
}

TEST(Bandwidth, KernelsOfAllInstructionSetsComputeTheSame) {
  constexpr int n = 48;
  alignas(64) float a[n], b[n], c[n];
  for (int i = 0; i < n; ++i) b[i] = static_cast<float>(i), c[i] = static_cast<float>(2 * i);
  for (const CpuKernels* kernels : supported_kernels()) {
    for (const int streaming : {0, 1}) {
      kernels->triad[streaming](a, b, c, 32);
      kernels->stream_copy[streaming](a + 32, b, c, 16);
      for (int i = 0; i < n; ++i) EXPECT_EQ(a[i], i < 32 ? 2 * i : i - 32) << kernels->isa;
    }
  }
}

}  // namespace
}  // namespace mb
