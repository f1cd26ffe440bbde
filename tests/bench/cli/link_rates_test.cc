#include "bench/cli/link_rates.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

std::string datasheet(const char* gpu) {
  const auto machine = datasheet_of(gpu);
  return machine ? machine->name : "none";
}

TEST(LinkRates, DatasheetsAreOfTheLongestNameThatAGpuHas) {
  EXPECT_EQ(datasheet("NVIDIA H100 80GB HBM3"), "h100x8");
  EXPECT_EQ(datasheet("NVIDIA H100 PCIe"), "h100-pciex8");
  EXPECT_EQ(datasheet("NVIDIA A100-PCIE-40GB"), "a100-pciex8");
  EXPECT_EQ(datasheet("NVIDIA H200"), "h200x8");
  EXPECT_EQ(datasheet("NVIDIA GH200 480GB"), "gh200");
  EXPECT_EQ(datasheet("NVIDIA B200"), "b200x8");
  EXPECT_EQ(datasheet("NVIDIA GB200"), "gb200x72");
  EXPECT_EQ(datasheet("emulated device (test double)"), "none");
}

}  // namespace
}  // namespace mb
