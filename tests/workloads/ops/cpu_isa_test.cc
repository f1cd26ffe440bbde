#include "workloads/ops/cpu_isa.h"

#include <gtest/gtest.h>

#include <array>

#include "workloads/base/error.h"

namespace mb {
namespace {

TEST(CpuIsa, TheBaselineIsAlwaysThereAndLast) {
  EXPECT_EQ(supported_kernels().back()->isa, "base");
  EXPECT_EQ(&find_kernels("base"), &base_kernels);
}

TEST(CpuIsa, AnUnknownNameIsAnErrorThatListsWhatRunsHere) {
  try {
    find_kernels("sse9");
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sse9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("base"), std::string::npos);
  }
}

TEST(CpuIsa, AnElementTypeWithoutKernelsIsAnError) {
  std::array<float, 4> x{};
  const std::array<void*, 1> writes = {x.data()};
  EXPECT_THROW(run_cpu_op({Accumulate{4, false}, DType::int32}, {}, {}, writes), Error);
}

TEST(CpuIsa, ReportsNameTheBackendInUse) {
  EXPECT_EQ(cpu_isa(), cpu_kernels().isa);
  EXPECT_EQ(matmul_backend(DType::fp64), "built-in " + cpu_isa());
  EXPECT_EQ(matmul_backend(DType::fp16), matmul_backend(DType::fp32) + " in fp32");
}

}  // namespace
}  // namespace mb
