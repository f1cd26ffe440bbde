// How process groups and pipelines lie on the nodes of a machine.
#pragma once

#include <vector>

#include "parallel/cost/machine.h"
#include "parallel/mesh/mesh.h"

namespace mb {

// How the busiest of all groups of a kind lies on the nodes.
struct GroupSpread {
  int ranks = 1, nodes = 1;
  int on_a_node = 1;         // most of its members that share a node
  int groups_on_a_node = 1;  // most of them that a node sends for at once, and so share its NICs
  bool crosses_leaves = false;
  bool operator==(const GroupSpread&) const = default;
};
// From the sizes of the axes alone where nodes are whole blocks of the mesh, however large that is;
// else by going over all groups.
GroupSpread spread_of(const Mesh& mesh, Group group, const Machine& machine);
// Of groups that are at it at once, each as the nodes of its members.
GroupSpread spread_of(const std::vector<std::vector<int>>& groups, const Machine& machine);
GroupSpread spread_by_groups(const Mesh& mesh, Group group, const Machine& machine);

// By stage and peer, stages * stages: most ranks of a node whose messages to that stage leave the
// node; 0 where all stay, and for stages that exchange none.
std::vector<int> messages_leaving(const Mesh& mesh);
std::vector<int> messages_leaving_by_pipelines(const Mesh& mesh);
// Of a message of which so many leave a node.
inline GroupSpread message_spread(int leaving) {
  return {.ranks = 2, .nodes = leaving > 0 ? 2 : 1, .groups_on_a_node = leaving > 0 ? leaving : 1};
}

}  // namespace mb
