// The plumbing of measurements on the test double of CUDA: no rate that comes from it means
// anything.
#include "workloads/ops/cuda_peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/error.h"

namespace mb {
namespace {

constexpr GpuEffort kShort{.warm_up_ms = 0.01, .try_ms = 0.01, .tries = 3};

class GpuPeaks : public ::testing::Test {
 protected:
  void SetUp() override { cuda_emulation::reset(); }
  void TearDown() override {
    EXPECT_EQ(cuda_emulation::faults(), std::vector<std::string>{});
    EXPECT_EQ(cuda_emulation::memory(0).live_bytes, 0u);
    EXPECT_EQ(cuda_emulation::memory(0).pinned_bytes, 0u);
  }
};

TEST_F(GpuPeaks, AreMeasuredInEveryDtype) {
  for (DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    const double rate = measure_gemm(dtype, false, {8, 16, 24}, kShort);
    EXPECT_TRUE(std::isfinite(rate) && rate > 0) << name_of(dtype);
  }
  EXPECT_GT(measure_gemm(DType::fp32, true, {8, 16, 24}, kShort), 0);
  // A first, a second, a warm-up and three tries, once or more each.
  EXPECT_GE(cuda_emulation::calls("cublasLtMatmul"), 5 * 6);
}

TEST_F(GpuPeaks, OfCopiesAreThoseOfAllThreeKinds) {
  const GpuCopyRates rates = measure_copies(4096, kShort);
  EXPECT_GT(rates.within, 0);
  EXPECT_GT(rates.to_device, 0);
  EXPECT_GT(rates.to_host, 0);
}

TEST_F(GpuPeaks, RefuseWhatCannotBeMeasured) {
  EXPECT_EQ(message_of([] {
              measure_gemm(DType::int32, false, {8, 8, 8}, kShort);
            }),
            "GPUs multiply fp64, fp32, bf16 and fp16, not int32");
  EXPECT_EQ(message_of([] {
              measure_gemm(DType::fp32, false, {0, 8, 8}, kShort);
            }),
            "a product of 0x8x8: give sizes above 0");
  EXPECT_EQ(message_of([] { measure_copies(0, kShort); }), "a copy of 0 bytes: give 1 or more");
  EXPECT_THROW(measure_copies(std::int64_t{1} << 32, kShort), OutOfMemory);
}

TEST_F(GpuPeaks, NameTheDeviceOrSayThatThereIsNone) {
  EXPECT_NE(gpu_name(), "");
  cuda_emulation::reset({.devices = 0});
  EXPECT_NE(message_of([] { gpu_name(); }).find("there is no GPU"), std::string::npos);
}

}  // namespace
}  // namespace mb
