#include "parallel/cost/wire.h"

#include <gtest/gtest.h>

#include <map>

#include "parallel/comm/algorithms.h"
#include "tests/support/counting_comm.h"
#include "tests/support/rank_threads.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr auto kAllReduce = CollectiveKind::all_reduce;
constexpr auto kAllToAll = CollectiveKind::all_to_all;

// `nodes` nodes of `each` members, one node after the other.
std::vector<int> in_nodes(int nodes, int each) {
  std::vector<int> of;
  for (int k = 0; k < nodes * each; ++k) of.push_back(k / each);
  return of;
}

Machine round_machine() {
  Machine machine;
  machine.intra = {.latency_us = 1, .gb_per_s = 400};
  machine.inter = {.latency_us = 10, .gb_per_s = 50};
  return machine;
}

TEST(LinkClass, IsThatOfThePlaces) {
  EXPECT_EQ(link_class(std::vector{3}), LinkClass::none);
  EXPECT_EQ(link_class(std::vector{3, 3}), LinkClass::intra);
  EXPECT_EQ(link_class(std::vector{0, 2, 1}), LinkClass::inter);
  EXPECT_EQ(link_class(std::vector{0, 1, 0}), LinkClass::mixed);
}

TEST(Wire, OfARingCrossesEveryNodeBoundaryOnce) {
  // 2 S (n - 1) / n on each edge.
  const Wire wire = wire_of(kAllReduce, Algorithm::ring, 1600, in_nodes(2, 8));
  EXPECT_DOUBLE_EQ(wire.intra, 2 * 1500);
  EXPECT_DOUBLE_EQ(wire.inter, 2 * 1500);
  EXPECT_DOUBLE_EQ(wire.node, 2 * 1500);
  EXPECT_DOUBLE_EQ(wire.total_inter, 2 * 2 * 1500);
  EXPECT_DOUBLE_EQ(wire.total_intra, 14 * 2 * 1500);
}

TEST(Wire, OfTwoLevelsIsDividedByTheMembersOfANode) {
  // Within: 2 S (k - 1) / k; between: 2 (S / k) (N - 1) / N each, k times that for a node.
  for (const int nodes : {2, 3, 4}) {
    const Wire wire = wire_of(kAllReduce, Algorithm::two_level, 9600, in_nodes(nodes, 8));
    EXPECT_DOUBLE_EQ(wire.intra, 2 * 9600.0 * 7 / 8);
    EXPECT_DOUBLE_EQ(wire.inter, 2 * 1200.0 * (nodes - 1) / nodes);
    EXPECT_DOUBLE_EQ(wire.node, 8 * wire.inter);
  }
}

TEST(Wire, OfAllToAllLeavesTheNodeForAllMembersElsewhere) {
  // S (n - k) / n between nodes, S (k - 1) / n within.
  const Wire wire = wire_of(kAllToAll, Algorithm::own, 3200, in_nodes(4, 8));
  EXPECT_DOUBLE_EQ(wire.inter, 3200.0 * 24 / 32);
  EXPECT_DOUBLE_EQ(wire.intra, 3200.0 * 7 / 32);
  EXPECT_DOUBLE_EQ(wire.node, 8 * wire.inter);
}

TEST(Wire, OfATreeIsMostAtItsRoot) {
  EXPECT_DOUBLE_EQ(wire_of(kAllReduce, Algorithm::tree, 100, in_nodes(1, 4)).intra, 200);
  EXPECT_DOUBLE_EQ(wire_of(kAllReduce, Algorithm::tree, 100, in_nodes(1, 4)).total_intra, 600);
  EXPECT_DOUBLE_EQ(wire_of(CollectiveKind::broadcast, Algorithm::tree, 100, in_nodes(1, 8)).intra,
                   300);
}

TEST(Wire, OfHalvingAndDoublingIsThatOfTheRingForPowersOfTwo) {
  const auto intra = [](Algorithm algorithm, int n) {
    return wire_of(kAllReduce, algorithm, 840, in_nodes(1, n)).intra;
  };
  for (const int n : {2, 4, 8})
    EXPECT_DOUBLE_EQ(intra(Algorithm::halving_doubling, n), intra(Algorithm::ring, n));
  // Of 6, two hand theirs to a neighbour: S, and the neighbour sends the result back.
  EXPECT_DOUBLE_EQ(intra(Algorithm::halving_doubling, 6), 2 * 840 * 3.0 / 4 + 840);
}

TEST(Wire, OfAGatherIsMostWhereItComesIn) {
  const Wire wire = wire_of(CollectiveKind::gather, Algorithm::direct, 1600, in_nodes(2, 8));
  EXPECT_DOUBLE_EQ(wire.intra, 100);
  EXPECT_DOUBLE_EQ(wire.received.intra, 700);
  EXPECT_DOUBLE_EQ(wire.received.inter, 800);
  EXPECT_DOUBLE_EQ(wire.received.node, 800);
  EXPECT_DOUBLE_EQ(wire.busier().intra, 700);
}

TEST(Wire, OfOneMemberIsNothing) {
  const Wire wire = wire_of(kAllReduce, Algorithm::ring, 100, std::vector{0});
  EXPECT_EQ(wire.total_intra + wire.total_inter, 0);
}

TEST(BusbwCeiling, OfARingIsItsSlowestLink) {
  const auto ceiling = [](Algorithm algorithm, int nodes) {
    return *busbw_ceiling(kAllReduce, algorithm, in_nodes(nodes, 8), round_machine());
  };
  EXPECT_DOUBLE_EQ(ceiling(Algorithm::ring, 1), 400e9);
  EXPECT_DOUBLE_EQ(ceiling(Algorithm::ring, 4), 50e9);
  EXPECT_DOUBLE_EQ(ceiling(Algorithm::own, 4), 50e9);
  // Two levels: 2 S 7 / 8 at 400 GB/s against 2 S / 8 * 3 / 4 at 50 GB/s.
  EXPECT_DOUBLE_EQ(ceiling(Algorithm::two_level, 4), 2 * 31.0 / 32 / (2 * 7.0 / 8 / 400e9));
  EXPECT_FALSE(busbw_ceiling(kAllReduce, Algorithm::ring, std::vector{0}, round_machine()));
}

TEST(BusbwCeiling, OfAllToAllBetweenNodesGoesToTheNicTimesNodesOverOneLess) {
  // (n - 1) / n over (n - k) / n = (n - 1) / (n - k), which goes to N / (N - 1) for many members.
  const double eight =
      *busbw_ceiling(kAllToAll, Algorithm::direct, in_nodes(2, 8), round_machine());
  EXPECT_DOUBLE_EQ(eight, 50e9 * 15 / 8);
  const double many =
      *busbw_ceiling(kAllToAll, Algorithm::direct, in_nodes(4, 1024), round_machine());
  EXPECT_NEAR(many / 50e9, 4.0 / 3, 0.001);
}

TEST(BusbwCeiling, OfATreeIsHalvedByItsRoot) {
  EXPECT_DOUBLE_EQ(*busbw_ceiling(kAllReduce, Algorithm::tree, in_nodes(4, 1), round_machine()),
                   1.5 * 50e9 / 2);
}

TEST(BusbwCeiling, OfOneRootIsTheDirectionThatItsLinkIsBusyIn) {
  const auto ceiling = [](CollectiveKind kind, const std::vector<int>& nodes) {
    return *busbw_ceiling(kind, Algorithm::direct, nodes, round_machine());
  };
  // (n - 1) / n S into, or out of, the root.
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::gather, in_nodes(1, 8)), 400e9);
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::scatter, in_nodes(1, 8)), 400e9);
  // (n - 1) S.
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::reduce, in_nodes(1, 8)), 400e9 / 7);
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::broadcast, in_nodes(1, 8)), 400e9 / 7);
  // Of 16 parts, 8 are on the other node.
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::gather, in_nodes(2, 8)), 50e9 * 15 / 8);
  EXPECT_DOUBLE_EQ(ceiling(CollectiveKind::reduce, in_nodes(2, 8)), 50e9 / 8);
}

TEST(MemoryCeiling, IsThatOfOnePass) {
  const auto of = [](CollectiveKind kind, int n) { return *memory_ceiling(kind, n, 60e9); };
  EXPECT_DOUBLE_EQ(of(kAllReduce, 2), 60e9 / 4);
  EXPECT_DOUBLE_EQ(of(kAllReduce, 4), 60e9 * 3 / 16);
  EXPECT_DOUBLE_EQ(of(CollectiveKind::all_gather, 2), 60e9 / 8);
  EXPECT_DOUBLE_EQ(of(kAllToAll, 4), 60e9 * 3 / 32);
  EXPECT_DOUBLE_EQ(of(CollectiveKind::reduce_scatter, 2), 60e9 / 6);
  EXPECT_DOUBLE_EQ(of(CollectiveKind::broadcast, 2), 60e9 / 2);
  EXPECT_DOUBLE_EQ(of(CollectiveKind::broadcast, 3), 60e9 / 4);
  EXPECT_FALSE(memory_ceiling(kAllReduce, 1, 60e9));
}

// One operation of `bytes` in all; the root is member 0.
void carry_out(Comm& comm, CollectiveKind kind, std::int64_t bytes) {
  const std::int64_t each = bytes / comm.size();
  std::vector<std::uint8_t> from(bytes), to(bytes);
  constexpr DType type = DType::uint8;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return comm.all_reduce(from.data(), to.data(), bytes, type, ReduceOp::sum);
    case CollectiveKind::all_gather:
      return comm.all_gather(from.data(), to.data(), each, type);
    case CollectiveKind::reduce_scatter:
      return comm.reduce_scatter(from.data(), to.data(), each, type, ReduceOp::sum);
    case CollectiveKind::broadcast:
      return comm.broadcast(from.data(), to.data(), bytes, type, 0);
    case CollectiveKind::all_to_all:
      return comm.all_to_all(from.data(), to.data(), each, type);
    case CollectiveKind::all_to_all_v: {
      const std::vector<std::int64_t> counts(comm.size(), each);
      return comm.all_to_all_v(from.data(), counts, to.data(), counts, type);
    }
    case CollectiveKind::shift:
      return comm.shift(from.data(), to.data(), bytes, type);
    case CollectiveKind::reduce:
      return comm.reduce(from.data(), to.data(), bytes, type, ReduceOp::sum, 0);
    case CollectiveKind::gather:
      return comm.gather(from.data(), to.data(), each, type, 0);
    case CollectiveKind::scatter:
      return comm.scatter(from.data(), to.data(), each, type, 0);
  }
}

Wire count(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
           const std::vector<int>& nodes) {
  const int n = static_cast<int>(nodes.size());
  ThreadWorld world(n);
  std::vector<test::CountedWire> wires(n);
  EXPECT_EQ(test::on_ranks(world,
                           [&](int rank) {
                             auto counting = std::make_unique<test::CountingComm>(
                                 world.comm("g", test::first_ranks(n), rank), nodes, wires[rank]);
                             carry_out(*with_algorithm(std::move(counting), algorithm, nodes), kind,
                                       bytes);
                           }),
            "");
  Wire sum;
  std::map<int, double> leaving, entering;
  const auto add = [](WirePeak& peak, const test::CountedBytes& bytes, double& of_node) {
    of_node += static_cast<double>(bytes.inter);
    peak.intra = std::max(peak.intra, static_cast<double>(bytes.intra));
    peak.inter = std::max(peak.inter, static_cast<double>(bytes.inter));
    peak.node = std::max(peak.node, of_node);
  };
  for (int k = 0; k < n; ++k) {
    add(sum, wires[k].sent, leaving[nodes[k]]);
    add(sum.received, wires[k].received, entering[nodes[k]]);
    sum.total_intra += static_cast<double>(wires[k].sent.intra);
    sum.total_inter += static_cast<double>(wires[k].sent.inter);
  }
  return sum;
}

void expect_near(const WirePeak& a, const WirePeak& b) {
  EXPECT_NEAR(a.intra, b.intra, 1e-6);
  EXPECT_NEAR(a.inter, b.inter, 1e-6);
  EXPECT_NEAR(a.node, b.node, 1e-6);
}

// 5040 and its multiples divide into any parts that these groups make.
TEST(Wire, IsWhatTheAlgorithmsSendAndReceive) {
  const std::vector<std::vector<int>> placements = {
      {0, 0, 0, 0},    {0, 0, 1, 1},       {0, 1, 0, 1},          {0, 1, 2},
      {0, 0, 0, 1, 1}, {4, 4, 4, 4, 4, 2}, {0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 2, 2, 2}};
  for (const auto& nodes : placements) {
    for (int a = 0; a < kAlgorithms; ++a) {
      for (int k = 0; k < kCollectiveKinds; ++k) {
        const auto algorithm = static_cast<Algorithm>(a);
        const auto kind = static_cast<CollectiveKind>(k);
        if (!has_algorithm(kind, algorithm)) continue;
        SCOPED_TRACE(cat(name_of(kind), " by ", name_of(algorithm), " over ", nodes.size()));
        constexpr std::int64_t bytes = 5040 * 6;
        const Wire wire = wire_of(kind, algorithm, bytes, nodes);
        const Wire counted = count(kind, algorithm, bytes, nodes);
        expect_near(wire, counted);
        expect_near(wire.received, counted.received);
        EXPECT_NEAR(wire.total_intra, counted.total_intra, 1e-6);
        EXPECT_NEAR(wire.total_inter, counted.total_inter, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace mb
