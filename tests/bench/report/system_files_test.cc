#include "bench/report/system_files.h"

#include <gtest/gtest.h>

#include "tests/support/tree.h"

namespace mb {
namespace {

TEST(SystemFiles, ReadsLinesNumbersAndChoices) {
  Tree tree;
  tree.file("line", "first\nsecond\n")
      .file("empty", "")
      .file("hex", "0x10de\n")
      .file("minus", "-1\n");
  tree.file("choice", "always [madvise] never\n").file("word", "12 apples\n");
  EXPECT_EQ(line_of(tree.root() / "line"), "first");
  EXPECT_EQ(line_of(tree.root() / "empty"), std::nullopt);
  EXPECT_EQ(line_of(tree.root() / "none"), std::nullopt);
  EXPECT_EQ(lines_of(tree.root() / "line").size(), 2u);
  EXPECT_EQ(number_of(tree.root() / "hex"), 0x10de);
  EXPECT_EQ(number_of(tree.root() / "minus"), -1);
  EXPECT_EQ(number_of(tree.root() / "word"), std::nullopt);
  EXPECT_EQ(chosen_of(tree.root() / "choice"), "madvise");
  EXPECT_EQ(chosen_of(tree.root() / "line"), "first");
}

TEST(SystemFiles, FieldsLoseTheSpacesAroundThem) {
  Tree tree;
  tree.file("proc/meminfo", "MemTotal:       24 kB\nno colon\nMemFree \t:\t1 kB\n");
  const Fields fields = fields_of(tree.root() / "proc/meminfo");
  EXPECT_EQ(first_of(fields, "MemTotal"), "24 kB");
  EXPECT_EQ(first_of(fields, "MemFree"), "1 kB");
  EXPECT_EQ(first_of(fields, "no colon"), std::nullopt);
}

TEST(SystemFiles, CountsNumberedEntriesAlone) {
  Tree tree;
  tree.file("node0/x", "").file("node12/x", "").file("node/x", "").file("node1a/x", "");
  EXPECT_EQ(numbered_entries(tree.root(), "node"), 2);
  EXPECT_EQ(numbered_entries(tree.root() / "none", "node"), 0);
}

TEST(SystemFiles, CountsTheCpusOfAList) {
  EXPECT_EQ(cpus_of_list("0-3,8,10-11"), 7);
  EXPECT_EQ(cpus_of_list("5"), 1);
  EXPECT_EQ(cpus_of_list(""), 0);
}

TEST(SystemFiles, AQuotaIsTimeOverPeriodAndMaxIsNone) {
  Tree tree;
  tree.file("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(tree.root()), 1.5);
  tree.file("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(tree.root()), std::nullopt);
}

TEST(SystemFiles, MemoryIsWhatTheControlGroupLeavesOfIt) {
  Tree tree;
  EXPECT_EQ(usable_memory_bytes(tree.root()), 0);
  tree.file("proc/meminfo", "MemTotal:       1024 kB\n");
  EXPECT_EQ(usable_memory_bytes(tree.root()), 1 << 20);
  tree.file("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(usable_memory_bytes(tree.root()), 1 << 20);
  tree.file("sys/fs/cgroup/memory.max", "4096\n");
  EXPECT_EQ(usable_memory_bytes(tree.root()), 4096);
  tree.file("sys/fs/cgroup/memory.max", "9999999999\n");
  EXPECT_EQ(usable_memory_bytes(tree.root()), 1 << 20);
}

TEST(SystemFiles, TheDriverIsTheFirstVersionOfItsLine) {
  Tree tree;
  EXPECT_EQ(gpu_driver(tree.root()), std::nullopt);
  tree.file("proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC 12\n");
  EXPECT_EQ(gpu_driver(tree.root()), "550.54.15");
}

}  // namespace
}  // namespace mb
