#include "parallel/cost/network.h"

#include <gtest/gtest.h>

#include "parallel/cost/curves.h"
#include "tests/support/error.h"

namespace mb {
namespace {

constexpr auto kAllReduce = CollectiveKind::all_reduce;
constexpr std::int64_t kLarge = std::int64_t{1} << 34;  // no latency is seen beside it

Machine machine_with(int nics) {
  Machine machine;
  machine.name = "round";
  machine.intra = {.latency_us = 1, .gb_per_s = 400};
  machine.inter = {.latency_us = 10, .gb_per_s = 50};
  machine.nics_per_node = nics;
  return machine;
}

Mesh mesh_of(std::string_view text, int ranks_per_node) {
  Mesh mesh = Mesh::parse(text);
  mesh.set_ranks_per_node(ranks_per_node);
  return mesh;
}

double seconds(std::string_view mesh, Axis axis, const Machine& machine,
               std::int64_t bytes = kLarge) {
  return group_seconds(kAllReduce, bytes, spread_of(mesh_of(mesh, 8), group_of(axis), machine),
                       machine);
}

TEST(Network, CountsGroupsThatLeaveANodeAtOnce) {
  const Machine machine = machine_with(8);
  const auto spread = [&](std::string_view mesh, Axis axis) {
    return spread_of(mesh_of(mesh, 8), group_of(axis), machine);
  };
  EXPECT_EQ(spread("dp2.tp8", Axis::dp).groups_on_a_node, 8);
  EXPECT_EQ(spread("dp2.tp8", Axis::dp).on_a_node, 1);
  EXPECT_EQ(spread("dp4.tp4", Axis::dp).groups_on_a_node, 4);
  EXPECT_EQ(spread("dp4.tp4", Axis::dp).on_a_node, 2);
  EXPECT_EQ(spread("dp16", Axis::dp).groups_on_a_node, 1);
  EXPECT_EQ(spread("dp16", Axis::dp).nodes, 2);
  EXPECT_EQ(spread("dp2.tp8", Axis::tp).nodes, 1);
  EXPECT_EQ(spread("tp16", Axis::tp).nodes, 2) << "tensor ranks may cross nodes";
}

// 8 groups on 8 NICs have one each; on 4 and on 1 they share, in equal parts.
TEST(Network, GroupsShareTheNicsOfTheirNode) {
  const double own = seconds("dp2.tp8", Axis::dp, machine_with(8));
  EXPECT_NEAR(seconds("dp2.tp8", Axis::dp, machine_with(4)), 2 * own, 0.01 * own);
  EXPECT_NEAR(seconds("dp2.tp8", Axis::dp, machine_with(1)), 8 * own, 0.01 * own);
  EXPECT_NEAR(own, kLarge / 50e9, 0.01 * own) << "2 (n - 1) / n of the bytes at a NIC's rate";
}

TEST(Network, TwoGroupsOnOneNicGetHalfEach) {
  Machine machine = machine_with(1);
  machine.ranks_per_node = 2;
  const auto of = [&](std::string_view mesh, int per_node) {
    return group_seconds(kAllReduce, kLarge,
                         spread_of(mesh_of(mesh, per_node), group_of(Axis::dp), machine), machine);
  };
  EXPECT_NEAR(of("dp2.tp2", 2), 2 * of("dp2", 1), 0.01 * of("dp2", 1));
}

double by(Algorithm algorithm, std::string_view mesh, int per_node, const Machine& machine,
          std::int64_t bytes = kLarge) {
  const Mesh placed = mesh_of(mesh, per_node);
  const Group group = group_of(Axis::dp);
  return group_seconds(kAllReduce, algorithm, bytes, placed.nodes_of(placed.groups(group)[0]),
                       spread_of(placed, group, machine), machine);
}

constexpr Algorithm kStepped[] = {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling,
                                  Algorithm::tree, Algorithm::two_level};

// Thakur, Rabenseifner and Gropp (2005), within a node and with a node for every member.
TEST(Network, EachAlgorithmTakesItsClosedForm) {
  Machine machine = machine_with(1);
  machine.ranks_per_node = 1;
  machine.nic_efficiency = 0.5;
  for (const bool within : {true, false}) {
    for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 22, kLarge}) {
      const double latency = within ? 1e-6 : 10e-6, rate = within ? 400e9 : 25e9;
      const auto size = static_cast<double>(bytes);
      const auto expect = [&](Algorithm algorithm, double rounds, double carried) {
        const double wanted = rounds * latency + carried * size / rate;
        EXPECT_NEAR(by(algorithm, "dp8", within ? 8 : 1, machine, bytes), wanted, 0.01 * wanted)
            << name_of(algorithm) << " of " << bytes << (within ? " within" : " between");
      };
      expect(Algorithm::ring, 14, 2 * 7 / 8.0);
      expect(Algorithm::direct, 14, 2 * 7 / 8.0);
      expect(Algorithm::halving_doubling, 6, 2 * 7 / 8.0);
      expect(Algorithm::tree, 6, 6);
      expect(Algorithm::two_level, 14, 2 * 7 / 8.0);
    }
  }
}

TEST(Network, TwoGroupsOnOneNicGetHalfEachByEveryAlgorithm) {
  Machine machine = machine_with(1);
  machine.ranks_per_node = 2;
  for (const Algorithm algorithm : kStepped) {
    const double alone = by(algorithm, "dp4", 1, machine);
    EXPECT_NEAR(by(algorithm, "dp4.tp2", 2, machine), 2 * alone, 0.01 * alone)
        << name_of(algorithm);
    machine.nics_per_node = 2;
    EXPECT_NEAR(by(algorithm, "dp4.tp2", 2, machine), alone, 0.01 * alone) << name_of(algorithm);
    machine.nics_per_node = 1;
  }
}

// Of 4 members on each of 2 nodes one crosses by a ring, all four at once in the widest round of
// halving and doubling and on the rails of two levels.
TEST(Network, MembersOfAGroupShareTheNicsOfTheirNodeToo) {
  const auto taken = [](Algorithm algorithm, int nics) {
    Machine machine = machine_with(nics);
    machine.ranks_per_node = 4;
    machine.intra = {.latency_us = 0, .gb_per_s = 1e9};
    return by(algorithm, "dp8", 4, machine);
  };
  const double size = kLarge;
  EXPECT_NEAR(taken(Algorithm::ring, 4), 2 * 7 / 8.0 * size / 50e9, 0.01);
  EXPECT_NEAR(taken(Algorithm::ring, 1), 2 * 7 / 8.0 * size / 50e9, 0.01);
  EXPECT_NEAR(taken(Algorithm::two_level, 4), 2 * 0.5 * size / 4 / 50e9, 0.01);
  EXPECT_NEAR(taken(Algorithm::two_level, 1), 2 * 0.5 * size / 50e9, 0.01);
  EXPECT_NEAR(taken(Algorithm::halving_doubling, 1) / taken(Algorithm::halving_doubling, 4), 4,
              0.04);
}

// A ring through all ranks of its nodes enters and leaves them by every NIC, up to its links.
TEST(Network, ARingThroughWholeNodesUsesAllTheirNics) {
  const double wire = 2.0 * 15 / 16 * kLarge;
  EXPECT_NEAR(seconds("dp16", Axis::dp, machine_with(4)), wire / 200e9, 0.01 * wire / 200e9);
  EXPECT_NEAR(seconds("dp16", Axis::dp, machine_with(8)), wire / 400e9, 0.01 * wire / 400e9);
  EXPECT_NEAR(seconds("dp16", Axis::dp, machine_with(16)), wire / 400e9, 0.01 * wire / 400e9);
}

TEST(Network, WhatLeavesALeafIsOversubscribed) {
  Machine machine = machine_with(8);
  const double within = seconds("dp4.tp8", Axis::dp, machine);
  machine.oversubscription = 2;
  EXPECT_EQ(seconds("dp4.tp8", Axis::dp, machine), within) << "all nodes share a leaf";
  machine.nodes_per_leaf = 2;
  EXPECT_NEAR(seconds("dp4.tp8", Axis::dp, machine), 2 * within, 0.01 * within);
}

TEST(Network, SmallMessagesOnManyNodesTakeATree) {
  const Machine machine = machine_with(8);
  // 7 hops of 1.9 / 3.4 us and such would be a ring's; LL's tree: 2 (10 hops of 10 us * 5 / 14).
  EXPECT_NEAR(seconds("dp1024.tp8", Axis::dp, machine, 64), 6.6e-6 + 2 * 10 * 10e-6 * 5 / 14, 1e-6);
}

TEST(Network, MoreBytesAndMoreNodesNeverTakeLess) {
  const Machine machine = machine_with(8);
  double before = 0;
  for (std::int64_t bytes = 8; bytes < kLarge; bytes *= 4) {
    const double now = seconds("dp16.tp8", Axis::dp, machine, bytes);
    EXPECT_GE(now, before);
    before = now;
  }
  before = 0;
  for (const char* mesh : {"dp2.tp8", "dp4.tp8", "dp64.tp8", "dp512.tp8"}) {
    const double now = seconds(mesh, Axis::dp, machine, 1 << 20);
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(Network, StagesThatLeaveANodeTogetherShareItsNics) {
  const Machine machine = machine_with(1);
  const Mesh alone = mesh_of("pp2", 1), together = mesh_of("pp2.tp8", 8);
  EXPECT_NEAR(Network(together, machine).seconds(0, 1, kLarge),
              8 * Network(alone, machine).seconds(0, 1, kLarge), 0.01);
}

TEST(Curves, MeetWhatTheyWereFittedOn) {
  // nccl-tests on 8 A100, NCCL 2.27.3: 512 MiB all-reduce at a bus bandwidth of 222 GB/s.
  const double bytes = 512 << 20;
  const double seconds = *curve_seconds("a100_sxm", kAllReduce, 8, 512 << 20);
  EXPECT_NEAR(1.75 * bytes / seconds * 1e-9, 222, 5);
}

TEST(Curves, LieBetweenMeasuredNumbersOfRanksAndGoOnBeyond) {
  const auto at = [](int ranks, std::int64_t bytes = 1 << 26) {
    return *curve_seconds("h100_sxm", kAllReduce, ranks, bytes);
  };
  EXPECT_NEAR(at(3), (at(2) + at(4)) / 2, 1e-12);
  const double latency = at(8, 0), more = (at(8, 0) - at(4, 0)) / 4;
  EXPECT_NEAR(at(16, 0), latency + 8 * more, 1e-12);
  EXPECT_NEAR(at(16), at(16, 0) + (at(8) - latency) * (30.0 / 16) / (14.0 / 8), 1e-9);
}

TEST(Curves, OfNoneOrOfAKindThatWasNotMeasuredAreNone) {
  EXPECT_FALSE(curve_seconds("none", kAllReduce, 8, 1024).has_value());
  EXPECT_FALSE(curve_seconds("h100_sxm", CollectiveKind::broadcast, 8, 1024).has_value());
  EXPECT_NE(message_of([] { curve_seconds("h100", kAllReduce, 8, 1024); }).find("h100_sxm"),
            std::string::npos);
}

// The cheapest of what can be forced is what is chosen.
TEST(Network, ForcedAlgorithmsAndProtocolsBoundTheChoice) {
  Machine machine = find_machine("h100x8");
  const GroupSpread spread{.ranks = 64, .nodes = 8, .on_a_node = 8};
  for (const std::int64_t bytes :
       {std::int64_t{1} << 12, std::int64_t{1} << 20, std::int64_t{1} << 30}) {
    machine.algorithm = machine.protocol = "auto";
    const double chosen = group_seconds(CollectiveKind::all_reduce, bytes, spread, machine);
    double cheapest = 1e9;
    for (const char* algorithm : {"ring", "tree"}) {
      for (const char* protocol : {"ll", "ll128", "simple"}) {
        machine.algorithm = algorithm, machine.protocol = protocol;
        cheapest =
            std::min(cheapest, group_seconds(CollectiveKind::all_reduce, bytes, spread, machine));
      }
    }
    EXPECT_EQ(cheapest, chosen) << bytes;
  }
  machine.algorithm = "tree", machine.protocol = "simple";
  EXPECT_LT(group_seconds(CollectiveKind::all_gather, 1 << 20, spread, machine), 1)
      << "only all-reduces have trees; others keep their ring";
}

}  // namespace
}  // namespace mb
