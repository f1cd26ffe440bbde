#include "bench/doctor/gpus.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace mb {
namespace {

const GpuLibraries kFake{MB_FAKE_DRIVER, MB_FAKE_DRIVER, MB_FAKE_DRIVER};
const std::string kNone = "libnone-of-this-name.so";

TEST(Gpus, AreToldByTheDriverAndByNvml) {
  const GpuLibraryFacts facts = read_gpus(kFake);
  EXPECT_TRUE(facts.driver_library);
  EXPECT_EQ(facts.failure, std::nullopt);
  EXPECT_EQ(facts.cuda, 12080);
  EXPECT_EQ(facts.nccl, 22809);
  ASSERT_EQ(facts.gpus.size(), 2u);
  const GpuFacts& gpu = facts.gpus[0];
  EXPECT_EQ(gpu.name, "Fake 0");
  EXPECT_EQ(gpu.address, "0000:1a:00.0");
  EXPECT_EQ(gpu.memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(gpu.free_bytes, std::int64_t{79} << 30);
  EXPECT_EQ(gpu.major, 9);
  EXPECT_EQ(gpu.ecc, true);
  EXPECT_EQ(gpu.persistence, true);
  EXPECT_EQ(gpu.clock_mhz, 301);
  EXPECT_EQ(gpu.max_clock_mhz, 1901);
  EXPECT_EQ(gpu.max_memory_clock_mhz, 1902);
  EXPECT_EQ(gpu.links, 4);
  EXPECT_EQ(gpu.peers, (std::vector<bool>{true, true}));
  EXPECT_EQ(facts.gpus[1].peers, (std::vector<bool>{false, true}));
}

TEST(Gpus, WhatNvmlDoesNotTellIsUnknown) {
  EXPECT_EQ(read_gpus(kFake).gpus[1].persistence, std::nullopt);
  GpuLibraries without = kFake;
  without.nvml = kNone;
  const GpuLibraryFacts facts = read_gpus(without);
  EXPECT_FALSE(facts.nvml);
  EXPECT_EQ(facts.gpus[0].clock_mhz, std::nullopt);
  EXPECT_EQ(facts.gpus[0].free_bytes, facts.gpus[0].memory_bytes);
}

TEST(Gpus, ADriverThatFailsSaysWhy) {
  setenv("FAKE_DRIVER_ERROR", "803", 1);
  const GpuLibraryFacts facts = read_gpus(kFake);
  setenv("FAKE_DRIVER_ERROR", "7", 1);
  const GpuLibraryFacts other = read_gpus(kFake);
  unsetenv("FAKE_DRIVER_ERROR");
  EXPECT_EQ(facts.failure, "system has unsupported display driver / cuda driver combination (803)");
  EXPECT_EQ(other.failure, "error 7");
  EXPECT_TRUE(facts.gpus.empty());
}

TEST(Gpus, WithoutLibrariesThereAreNone) {
  const GpuLibraryFacts facts = read_gpus({kNone, kNone, kNone});
  EXPECT_FALSE(facts.driver_library);
  EXPECT_EQ(facts.nccl, std::nullopt);
  EXPECT_TRUE(facts.gpus.empty());
}

}  // namespace
}  // namespace mb
