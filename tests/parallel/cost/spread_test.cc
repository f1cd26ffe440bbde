// What follows from the sizes of the axes, against all groups and pipelines one by one.
#include "parallel/cost/spread.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>

#include "workloads/base/error.h"

namespace mb {

std::ostream& operator<<(std::ostream& out, const GroupSpread& s) {
  return out << s.ranks << " ranks on " << s.nodes << " nodes, " << s.on_a_node << " on each, of "
             << s.groups_on_a_node << " groups, over leaves " << s.crosses_leaves;
}

namespace {

TEST(Spread, IsThatOfAllGroupsOneByOne) {
  std::mt19937_64 random(3);
  const auto of = [&](std::initializer_list<int> choices) {
    return choices.begin()[random() % choices.size()];
  };
  const char* orders[] = {"tp-cp-ep-dp-rdp-pp", "pp-tp-cp-ep-dp-rdp", "dp-pp-tp-cp-rdp-ep"};
  int kinds = 0;
  for (int i = 0; i < 400; ++i) {
    Mesh mesh =
        Mesh::parse(cat("rdp", of({1, 1, 2}), ".dp", of({1, 2, 3, 4}), ".pp", of({1, 2, 3, 4, 6}),
                        ".cp", of({1, 2}), ".ep", of({1, 2}), ".tp", of({1, 2, 4, 8})));
    mesh.set_order(orders[random() % 3]);
    mesh.set_ranks_per_node(of({1, 2, 4, 6, 8, 16}));
    Machine machine;
    machine.nodes_per_leaf = of({0, 1, 2, 3, 4});
    std::vector<Group> groups = {kWorld, kEnds, kDataOwners, kExpertOwners};
    for (int axes = 1; axes < 1 << kAxes; axes += 5) {
      groups.push_back({static_cast<std::uint8_t>(axes)});
      groups.push_back({static_cast<std::uint8_t>(axes | kEnds.axes), true});
    }
    if (mesh.size(Axis::tp) % 4 == 0)
      groups.push_back({.axes = group_of(Axis::tp).axes, .part = 2});
    for (const Group group : groups) {
      ASSERT_EQ(spread_of(mesh, group, machine), spread_by_groups(mesh, group, machine))
          << mesh.to_text() << ' ' << mesh.order() << ' ' << mesh.ranks_per_node() << " a node, "
          << name_of(group) << ", leaves of " << machine.nodes_per_leaf;
      ++kinds;
    }
    ASSERT_EQ(messages_leaving(mesh), messages_leaving_by_pipelines(mesh))
        << mesh.to_text() << ' ' << mesh.order() << ' ' << mesh.ranks_per_node();
  }
  EXPECT_GT(kinds, 8000);
}

TEST(Spread, OfUnevenNodesGoesOverAllGroups) {
  Mesh mesh = Mesh::parse("dp3.tp2");
  mesh.set_nodes({0, 0, 0, 1, 1, 1});
  const GroupSpread tp = spread_of(mesh, group_of(Axis::tp), {});
  EXPECT_EQ(tp.nodes, 2);
  EXPECT_EQ(tp.groups_on_a_node, 1);
}

}  // namespace
}  // namespace mb
