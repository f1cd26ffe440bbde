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

TEST(SystemFiles, DividedGpusAreCountedByTheirInstances) {
  Tree tree;
  EXPECT_EQ(mig_instances(tree.root()), std::nullopt);
  tree.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: NVIDIA H100\n");
  EXPECT_EQ(mig_instances(tree.root()), 0);
  for (const char* name : {"gpu0/mig/gi1", "gpu0/mig/gi2", "gpu1/mig/gi9", "mig"})
    tree.file(std::string("proc/driver/nvidia/capabilities/") + name + "/access", "");
  EXPECT_EQ(mig_instances(tree.root()), 3);
}

// Files of two GPUs and a card, the first GPU at the first of two addresses.
std::string topology_at(const char* first, const char* second, const char* card, int node) {
  Tree tree;
  for (const auto& [address, near] : {std::pair(first, node), std::pair(second, 1)}) {
    tree.file(std::string("proc/driver/nvidia/gpus/") + address + "/information", "Model: H100\n");
    const std::string device = std::string("sys/bus/pci/devices/") + address;
    tree.file(device + "/numa_node", std::to_string(near) + "\n")
        .file(device + "/max_link_speed", "32.0 GT/s PCIe\n")
        .file(device + "/max_link_width", "16\n");
  }
  const std::string port = std::string("sys/class/infiniband/") + card;
  tree.file(port + "/hca_type", "MT4129\n").file(port + "/device/numa_node", "0\n");
  tree.file(port + "/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  return topology_text(tree.root());
}

TEST(SystemFiles, TopologyIsOfWhatDevicesAreAndNotOfTheirNamesOrAddresses) {
  Tree tree;
  tree.file("sys/devices/system/node/node0/distance", "10\n");
  EXPECT_EQ(topology_text(tree.root()), "");
  tree.file("sys/devices/system/node/node1/distance", "21 10\n");
  EXPECT_EQ(topology_text(tree.root()), "node 10\nnode 21 10\n");
  const std::string one = topology_at("0000:17:00.0", "0000:3d:00.0", "mlx5_0", 0);
  EXPECT_EQ(one,
            "card MT4129, node 0, 400 Gb/sec (4X NDR)\n"
            "gpu H100, node 0, 32.0 GT/s PCIe x 16\n"
            "gpu H100, node 1, 32.0 GT/s PCIe x 16\n");
  EXPECT_EQ(one, topology_at("0000:99:00.0", "0000:01:00.0", "mlx5_7", 0));
  EXPECT_NE(one, topology_at("0000:17:00.0", "0000:3d:00.0", "mlx5_0", 1));
}

TEST(SystemFiles, AContainerIsToldByItsImage) {
  Tree tree;
  EXPECT_EQ(container_image(tree.root()), std::nullopt);
  tree.file(".dockerenv", "");
  EXPECT_EQ(container_image(tree.root()), "docker");
  tree.file("run/.containerenv",
            "engine=\"podman-4.3.1\"\nimage=\"debian:12\"\nimageid=\"5f2a\"\n");
  EXPECT_EQ(container_image(tree.root()), "5f2a");
}

TEST(SystemFiles, HeatIsTheHottestSensorAndAllSlowDowns) {
  Tree tree;
  EXPECT_EQ(temperature_celsius(tree.root()), std::nullopt);
  EXPECT_EQ(throttle_events(tree.root()), std::nullopt);
  tree.file("sys/class/thermal/thermal_zone0/temp", "41000\n");
  tree.file("sys/class/thermal/thermal_zone1/temp", "52500\n");
  for (const char* cpu : {"cpu0", "cpu1"})
    tree.file(
        std::string("sys/devices/system/cpu/") + cpu + "/thermal_throttle/core_throttle_count",
        "3\n");
  EXPECT_EQ(temperature_celsius(tree.root()), 52.5);
  EXPECT_EQ(throttle_events(tree.root()), 6);
}

}  // namespace
}  // namespace mb
