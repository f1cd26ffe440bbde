#include "bench/doctor/node.h"

#include <gtest/gtest.h>

#include "tests/support/tree.h"

namespace mb {
namespace {

// As the kernel lays it out: devices where their bridges are, links to them elsewhere.
void add_pci(Tree& tree, const std::string& below, const std::string& address,
             const std::string& vendor, const std::string& kind, const std::string& node) {
  const std::string real = "sys/devices/" + below + "/" + address;
  tree.file(real + "/vendor", vendor + "\n").file(real + "/class", kind + "\n");
  tree.file(real + "/numa_node", node + "\n").file(real + "/local_cpulist", "0-3\n");
  tree.link("sys/bus/pci/devices/" + address, real);
}

TEST(Node, ReadsWhatTheKernelTellsOfCoresAndMemory) {
  Tree tree;
  tree.file("proc/sys/kernel/hostname", "a\n").file("proc/sys/kernel/osrelease", "6.1\n");
  tree.file("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n");
  tree.file("proc/self/status", "Cpus_allowed_list:\t0-1,4\n");
  tree.file("proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\n"
            "Max locked memory         8388608              unlimited   bytes\n");
  tree.file("sys/devices/system/cpu/online", "0-7\n")
      .file("sys/fs/cgroup/cpu.max", "200000 100000");
  tree.file("sys/devices/system/node/node0/x", "").file("sys/devices/system/node/node1/x", "");
  tree.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  tree.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  const NodeFacts node = read_node(tree.root());
  EXPECT_EQ(node.host, "a");
  EXPECT_EQ(node.online_cores, 8);
  EXPECT_EQ(node.usable_cores, 3);
  EXPECT_EQ(node.quota_cores, 2.0);
  EXPECT_EQ(node.numa_nodes, 2);
  EXPECT_EQ(node.memory_bytes, 1 << 20);
  EXPECT_EQ(node.available_bytes, 1 << 19);
  EXPECT_EQ(node.huge_pages, "never");
  EXPECT_EQ(node.clock_source, "hpet");
  EXPECT_EQ(node.locked_memory, "8388608");
  EXPECT_EQ(node.shared_memory_bytes, std::nullopt);
  EXPECT_EQ(node.governor, std::nullopt);
}

TEST(Node, FindsGpusAndCardsBehindTheirBridges) {
  Tree tree;
  add_pci(tree, "pci0000:16/0000:16:01.0", "0000:17:00.0", "0x10de", "0x030200", "0");
  add_pci(tree, "pci0000:16/0000:16:01.0", "0000:18:00.0", "0x15b3", "0x020700", "0");
  add_pci(tree, "pci0000:40", "0000:41:00.0", "0x10de", "0x040300", "-1");  // its sound
  tree.link("sys/class/infiniband/mlx5_0/device",
            "sys/devices/pci0000:16/0000:16:01.0/0000:18:00.0");
  tree.file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  tree.file("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  const NodeFacts node = read_node(tree.root());
  ASSERT_EQ(node.gpus.size(), 1u);
  EXPECT_EQ(node.gpus[0].address, "0000:17:00.0");
  EXPECT_EQ(node.gpus[0].path, std::vector<std::string>{"0000:16:01.0"});
  EXPECT_EQ(node.gpus[0].numa_node, 0);
  EXPECT_EQ(node.gpus[0].local_cores, "0-3");
  ASSERT_EQ(node.cards.size(), 1u);
  EXPECT_EQ(node.cards[0].name, "mlx5_0");
  EXPECT_EQ(node.cards[0].rate, "400 Gb/sec (4X NDR)");
  EXPECT_TRUE(node.cards[0].active);
  EXPECT_EQ(node.cards[0].pci.path, node.gpus[0].path);
}

TEST(Node, ReadsTheDriversVersionAndWhoMayProfile) {
  Tree tree;
  tree.file("proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
            "GCC version:  gcc version 12.2.0\n");
  tree.file("proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n");
  tree.file("sys/module/nvidia_peermem/refcnt", "0\n");
  const NodeFacts node = read_node(tree.root());
  EXPECT_EQ(node.driver, "570.86.15");
  EXPECT_EQ(node.profiling_admin_only, true);
  EXPECT_TRUE(node.peer_memory);
}

TEST(Node, WhereNothingIsToldNothingIsKnown) {
  Tree tree;
  const NodeFacts node = read_node(tree.root());
  EXPECT_EQ(node.online_cores, std::nullopt);
  EXPECT_EQ(node.memory_bytes, std::nullopt);
  EXPECT_EQ(node.driver, std::nullopt);
  EXPECT_EQ(node.profiling_admin_only, std::nullopt);
  EXPECT_TRUE(node.gpus.empty());
  EXPECT_TRUE(node.cards.empty());
}

TEST(Node, ReadsThisMachine) {
  const NodeFacts node = read_node();
  EXPECT_GE(node.usable_cores.value_or(0), 1);
  EXPECT_GT(node.memory_bytes.value_or(0), 0);
}

}  // namespace
}  // namespace mb
