#include "parallel/mesh/mesh.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/support/error.h"

namespace mb {
namespace {

constexpr Group both(Axis a, Axis b) {
  return {static_cast<std::uint8_t>(group_of(a).axes | group_of(b).axes)};
}

using Lists = std::vector<std::vector<int>>;

TEST(MeshText, RoundTripsInItsOwnOrder) {
  EXPECT_EQ(Mesh::parse("tp2.dp4.pp3").to_text(), "dp4.pp3.tp2");
  EXPECT_EQ(Mesh::parse("dp2.pp2.cp2.ep2.tp2").to_text(), "dp2.pp2.cp2.ep2.tp2");
  EXPECT_EQ(Mesh::parse("tp2.pp2.dp4.rdp3").to_text(), "rdp3.dp4.pp2.tp2");
  EXPECT_EQ(Mesh::parse("1").to_text(), "1");
  EXPECT_EQ(Mesh::parse("dp1.tp1"), Mesh());
  EXPECT_EQ(Mesh::parse("dp2.pp4.tp2").world(), 16);
}

TEST(MeshText, RefusesWhatIsNoMesh) {
  const auto message = [](std::string_view text) { return message_of([&] { Mesh::parse(text); }); };
  EXPECT_EQ(message("dp2.xp4"),
            "mesh 'dp2.xp4': unknown axis 'xp'; known are rdp, dp, pp, cp, ep and tp");
  EXPECT_EQ(message("dp0"),
            "mesh 'dp0': 'dp0' wants a size of at least 1 after the axis, as in dp2.pp4.tp2");
  EXPECT_EQ(message("dp2.dp4"), "mesh 'dp2.dp4': dp is there twice; give each axis once");
  EXPECT_EQ(message("dp1024.tp1024.pp2"), "mesh 'dp1024.tp1024.pp2': more than 1048576 ranks");
  for (const char* bad : {"dp", "dp-2", "dp2x", "dp99999999999"}) {
    EXPECT_NE(message(bad).find("wants a size of at least 1 after the axis"), std::string::npos);
  }
  for (const char* bad : {"", "2", "dp2.", ".dp2", "dp2..tp2", "dp2.1"}) {
    EXPECT_NE(message(bad).find("names no axis"), std::string::npos) << bad;
  }
}

TEST(MeshOrder, DefaultIsTensorFastestPipelineSlowest) {
  const Mesh mesh = Mesh::parse("dp2.pp2.tp2");
  EXPECT_EQ(mesh.order(), "tp-cp-ep-dp-rdp-pp");
  EXPECT_EQ(mesh.groups(group_of(Axis::tp)), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups(group_of(Axis::dp)), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups(group_of(Axis::pp)), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// The example of Megatron-LM's parallel_state.py: 16 ranks, tensor 2, pipeline 4.
TEST(MeshOrder, GroupsAreThoseOfMegatronsExample) {
  const Mesh mesh = Mesh::parse("tp2.pp4.dp2");
  EXPECT_EQ(mesh.groups(group_of(Axis::dp)),
            (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(mesh.groups(group_of(Axis::pp)),
            (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

TEST(MeshOrder, PipelineBeforeDataPutsStagesNextToEachOther) {
  Mesh mesh = Mesh::parse("dp2.pp2.tp2");
  mesh.set_order("tp-pp-dp");
  EXPECT_EQ(mesh.order(), "tp-pp-dp-cp-ep-rdp");
  Mesh same = Mesh::parse("dp2.pp2.tp2");
  same.set_order("tp,pp,dp");
  EXPECT_EQ(same, mesh);
  EXPECT_EQ(mesh.groups(group_of(Axis::pp)), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups(group_of(Axis::dp)), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(MeshOrder, RefusesUnknownRepeatedAndMissingAxes) {
  const auto message = [](std::string_view order) {
    Mesh mesh = Mesh::parse("dp2.tp2");
    return message_of([&] { mesh.set_order(order); });
  };
  EXPECT_EQ(message("tp-xp"),
            "order 'tp-xp': unknown axis 'xp'; known are rdp, dp, pp, cp, ep and tp");
  EXPECT_EQ(message("tp-dp-tp"), "order 'tp-dp-tp': tp is there twice; give each axis once");
  EXPECT_EQ(message("tp-pp"),
            "order 'tp-pp' leaves out dp, which has 2 ranks; name every axis of the mesh, fastest "
            "first");
  EXPECT_EQ(message("dp-tp"), "no Error");
}

TEST(MeshCoordinates, RankOfInvertsCoordinates) {
  for (const char* order : {"tp-cp-ep-dp-rdp-pp", "pp-rdp-dp-ep-cp-tp"}) {
    Mesh mesh = Mesh::parse("rdp2.dp2.pp3.cp2.ep2.tp4");
    mesh.set_order(order);
    for (int rank = 0; rank < mesh.world(); ++rank) {
      EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank);
      EXPECT_EQ(mesh.coordinate(rank, Axis::pp), mesh.coordinates(rank)[5]);
    }
  }
}

TEST(MeshGroups, PartitionTheWorldForEverySetOfAxes) {
  const Mesh mesh = Mesh::parse("rdp2.dp2.pp3.cp2.tp2");
  for (int axes = 0; axes < 1 << kAxes; ++axes) {
    const Group group{static_cast<std::uint8_t>(axes)};
    std::set<int> seen;
    for (const std::vector<int>& ranks : mesh.groups(group)) {
      EXPECT_EQ(static_cast<int>(ranks.size()), mesh.group_size(group));
      for (const int rank : ranks) {
        EXPECT_TRUE(seen.insert(rank).second);
        EXPECT_EQ(mesh.members(group, rank), ranks);
        EXPECT_EQ(ranks[mesh.index_in(group, rank)], rank);
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), mesh.world());
  }
}

TEST(MeshGroups, OfTwoAxesRunFirstAxisFastestWhateverTheRankOrder) {
  Mesh mesh = Mesh::parse("dp2.pp2.tp2");
  EXPECT_EQ(mesh.members(both(Axis::tp, Axis::pp), 3), (std::vector<int>{2, 3, 6, 7}));
  mesh.set_order("pp-dp-tp");
  EXPECT_EQ(mesh.members(both(Axis::tp, Axis::pp), 3), (std::vector<int>{2, 6, 3, 7}));
}

TEST(MeshGroups, WorldHoldsEveryRank) {
  const Mesh mesh = Mesh::parse("dp2.pp2.tp2");
  std::vector<int> all(8);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(mesh.members(kWorld, 5), all);
  EXPECT_EQ(mesh.group_size(Group{}), 1);
  EXPECT_EQ(mesh.members(Group{}, 5), std::vector<int>{5});
}

TEST(MeshGroups, EndsHoldFirstAndLastStageOnly) {
  const Mesh mesh = Mesh::parse("pp4.tp2");
  EXPECT_EQ(mesh.group_size(kEnds), 2);
  EXPECT_EQ(mesh.groups(kEnds), (Lists{{0, 6}, {1, 7}}));
  EXPECT_EQ(mesh.members(kEnds, 7), (std::vector<int>{1, 7}));
  EXPECT_TRUE(mesh.members(kEnds, 2).empty());
  EXPECT_EQ(mesh.index_in(kEnds, 7), 1);
  EXPECT_EQ(message_of([&] { mesh.index_in(kEnds, 2); }),
            "mesh pp4.tp2: rank 2 is in no group embedding");
}

constexpr Group cut(Group group, int part) {
  group.part = static_cast<std::uint8_t>(part);
  return group;
}

TEST(MeshParts, AreRunsOfMembersThatFollowEachOther) {
  const Mesh mesh = Mesh::parse("dp2.tp4");
  const Group pairs = cut(group_of(Axis::tp), 2);
  EXPECT_EQ(mesh.group_size(pairs), 2);
  EXPECT_EQ(mesh.groups(pairs), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.members(pairs, 7), (std::vector<int>{6, 7}));
  EXPECT_EQ(mesh.index_in(pairs, 7), 1);
  EXPECT_EQ(mesh.groups(cut(group_of(Axis::tp), 4)), mesh.groups(group_of(Axis::tp)));
  EXPECT_EQ(mesh.members(cut(group_of(Axis::tp), 1), 6), std::vector<int>{6});
}

TEST(MeshParts, FollowTheMembersNotTheRanks) {
  Mesh mesh = Mesh::parse("dp2.tp4");
  mesh.set_order("dp-tp");
  EXPECT_EQ(mesh.groups(cut(group_of(Axis::tp), 2)), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  mesh.set_ranks_per_node(4);
  EXPECT_TRUE(mesh.crosses_nodes(group_of(Axis::tp)));
  EXPECT_FALSE(mesh.crosses_nodes(cut(group_of(Axis::tp), 2)));
}

TEST(MeshParts, RefuseSizesThatDoNotDivideAndGroupsOverStages) {
  const Mesh mesh = Mesh::parse("pp2.tp4");
  const std::string message =
      "mesh pp2.tp4: group tp/3 has 4 ranks, which parts of 3 do not divide";
  EXPECT_EQ(message_of([&] { mesh.group_size(cut(group_of(Axis::tp), 3)); }), message);
  EXPECT_EQ(message_of([&] { mesh.members(cut(group_of(Axis::tp), 3), 0); }), message);
  EXPECT_EQ(message_of([&] { mesh.groups(cut(group_of(Axis::tp), 3)); }), message);
  EXPECT_EQ(message_of([&] { mesh.group_size(cut(group_of(Axis::pp), 2)); }),
            "mesh pp2.tp4: group pp/2 spans stages and cannot be cut");
}

TEST(MeshOwners, AreTheRanksThatShareAParameterWithinAReplica) {
  const Mesh mesh = Mesh::parse("rdp2.dp2.ep2.tp2");
  EXPECT_EQ(mesh.groups(kDataOwners),
            (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(mesh.members(kExpertOwners, 6), (std::vector<int>{2, 6}));
  EXPECT_EQ(mesh.members(kReplicas, 6), (std::vector<int>{6, 14}));
  EXPECT_EQ(mesh.index_in(kDataOwners, 12), 2);
  EXPECT_EQ(mesh.index_in(kExpertOwners, 12), 1);
}

TEST(MeshBatch, IsSharedByReplicasThenDataThenExpertRanksWhateverTheRankOrder) {
  for (const char* order : {"tp-cp-ep-dp-rdp-pp", "pp-rdp-dp-ep-cp-tp"}) {
    Mesh mesh = Mesh::parse("rdp2.dp3.pp2.cp2.ep2.tp2");
    mesh.set_order(order);
    EXPECT_EQ(mesh.data_size(), 12);
    for (int rank = 0; rank < mesh.world(); ++rank) {
      EXPECT_EQ(mesh.data_index(rank),
                (mesh.coordinate(rank, Axis::rdp) * 3 + mesh.coordinate(rank, Axis::dp)) * 2 +
                    mesh.coordinate(rank, Axis::ep));
    }
  }
}

TEST(MeshGroups, EndsOfOneStageAreOneRank) {
  const Mesh mesh = Mesh::parse("dp2");
  EXPECT_EQ(mesh.group_size(kEnds), 1);
  EXPECT_EQ(mesh.members(kEnds, 1), std::vector<int>{1});
}

TEST(MeshGroups, HaveNames) {
  EXPECT_EQ(name_of(group_of(Axis::tp)), "tp");
  EXPECT_EQ(name_of(both(Axis::pp, Axis::dp)), "dp.pp");
  EXPECT_EQ(name_of(kWorld), "world");
  EXPECT_EQ(name_of(kEnds), "embedding");
  EXPECT_EQ(name_of(Group{}), "self");
  EXPECT_EQ(name_of(kDataOwners), "dp.cp.ep");
  EXPECT_EQ(name_of(kExpertOwners), "dp.cp");
  EXPECT_EQ(name_of(kReplicas), "rdp");
  EXPECT_EQ(name_of(cut(group_of(Axis::tp), 2)), "tp/2");
}

TEST(MeshNodes, HoldRanksInRuns) {
  Mesh mesh = Mesh::parse("dp2.tp4");
  mesh.set_ranks_per_node(4);
  EXPECT_EQ(mesh.node_of(3), 0);
  EXPECT_EQ(mesh.node_of(4), 1);
  EXPECT_FALSE(mesh.crosses_nodes(group_of(Axis::tp)));
  EXPECT_TRUE(mesh.crosses_nodes(group_of(Axis::dp)));
  mesh.set_ranks_per_node(8);
  EXPECT_FALSE(mesh.crosses_nodes(kWorld));
  EXPECT_EQ(message_of([&] { mesh.set_ranks_per_node(0); }),
            "ranks per node 0: give a whole number of at least 1");
}

TEST(MeshNodes, OfAListMayBeUneven) {
  Mesh mesh = Mesh::parse("dp2.tp3");
  mesh.set_nodes({7, 7, 7, 7, 2, 2});
  EXPECT_EQ(mesh.node_of(3), 7);
  EXPECT_EQ(mesh.node_count(), 2);
  EXPECT_EQ(mesh.nodes_of(std::vector{4, 0}), (std::vector{2, 7}));
  EXPECT_TRUE(mesh.crosses_nodes(group_of(Axis::tp))) << "ranks 3 to 5";
  mesh.set_nodes({0, 0, 0, 1, 1, 1});
  EXPECT_FALSE(mesh.crosses_nodes(group_of(Axis::tp)));
  EXPECT_EQ(message_of([&] {
              mesh.set_nodes({0, 1});
            }),
            "nodes of 2 ranks for mesh dp2.tp3; give a node for each of its 6 ranks");
}

}  // namespace
}  // namespace mb
