#include "parallel/cost/spread.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace mb {
namespace {

int stride_of(const Mesh& mesh, Axis axis) {
  Coordinates one{};
  one[static_cast<int>(axis)] = mesh.size(axis) > 1 ? 1 : 0;
  return mesh.rank_of(one);
}

// A mesh whose nodes are all alike: of each axis, a node has so many coordinates that follow each
// other, and the nodes are as many such blocks.
struct Blocks {
  std::array<int, kAxes> on_a_node, nodes, node_stride;
};

std::optional<Blocks> blocks_of(const Mesh& mesh) {
  if (!mesh.nodes().empty()) return std::nullopt;
  const int node = std::min(mesh.ranks_per_node(), mesh.world());
  if (mesh.world() % node != 0) return std::nullopt;
  Blocks blocks;
  for (int axis = 0; axis < kAxes; ++axis) {
    const int size = mesh.size(static_cast<Axis>(axis));
    const int stride = size > 1 ? stride_of(mesh, static_cast<Axis>(axis)) : 1;
    int inner = 1;
    if (size > 1 && stride < node) {
      if (node % stride != 0) return std::nullopt;
      inner = std::min(size, node / stride);
      if (size % inner != 0 || (inner == size && node % (stride * size) != 0)) return std::nullopt;
    }
    blocks.on_a_node[axis] = inner;
    blocks.nodes[axis] = size / inner;
    blocks.node_stride[axis] = stride * inner / node;
  }
  return blocks;
}

constexpr int kPp = static_cast<int>(Axis::pp);

// How many coordinates of an axis its members have, on a node and over nodes; nullopt where a part
// is no block of the axis.
struct Extent {
  int on_a_node = 1, nodes = 1;
};
std::optional<Extent> extent_of(const Mesh& mesh, const Blocks& blocks, Group group, int axis,
                                int& part_left) {
  if ((group.axes >> axis & 1) == 0) return Extent{};
  const int inner = blocks.on_a_node[axis], outer = blocks.nodes[axis];
  if (group.ends && axis == kPp) return outer > 1 ? Extent{1, 2} : Extent{std::min(inner, 2), 1};
  if (group.part == 0) return Extent{inner, outer};
  const int size = mesh.size(static_cast<Axis>(axis)), block = std::min(size, part_left);
  if (part_left % block != 0 || size % block != 0) return std::nullopt;
  part_left /= block;
  if (block <= inner) return inner % block == 0 ? std::optional(Extent{block, 1}) : std::nullopt;
  return block % inner == 0 ? std::optional(Extent{inner, block / inner}) : std::nullopt;
}

// Whether some group has members in two leaves: nodes of a mesh go over them one by one.
bool crosses_leaves(const Mesh& mesh, const Blocks& blocks,
                    const std::array<Extent, kAxes>& extents, Group group, int nodes_per_leaf) {
  if (nodes_per_leaf <= 0) return false;
  std::array<int, kAxes> place{};
  const int count = mesh.node_count();
  for (int n = 0; n < count; ++n) {
    int first = 0, own = 0;
    for (int axis = 0; axis < kAxes; ++axis) {
      const int at =
          blocks.nodes[axis] == 1 ? 0 : n / blocks.node_stride[axis] % blocks.nodes[axis];
      place[axis] = at;
      own += at * blocks.node_stride[axis];
      const int extent = extents[axis].nodes;
      const bool ends = group.ends && axis == kPp && extent == 2;
      first += (ends ? 0 : at / extent * extent) * blocks.node_stride[axis];
    }
    if (group.ends && extents[kPp].nodes == 2 && place[kPp] != 0 &&
        place[kPp] != blocks.nodes[kPp] - 1)
      continue;
    if (own / nodes_per_leaf != first / nodes_per_leaf) return true;
  }
  return false;
}

}  // namespace

GroupSpread spread_of(const Mesh& mesh, Group group, const Machine& machine) {
  const std::optional<Blocks> blocks = blocks_of(mesh);
  if (!blocks) return spread_by_groups(mesh, group, machine);
  GroupSpread spread{.ranks = mesh.group_size(group)};
  std::array<Extent, kAxes> extents;
  int part_left = group.part > 0 ? spread.ranks : 1;
  for (int axis = 0; axis < kAxes; ++axis) {
    const auto extent = extent_of(mesh, *blocks, group, axis, part_left);
    if (!extent) return spread_by_groups(mesh, group, machine);
    extents[axis] = *extent;
    spread.on_a_node *= extent->on_a_node;
    spread.nodes *= extent->nodes;
  }
  if (spread.nodes > 1) {
    // With ends, of the node's stages those alone.
    const bool ends = group.ends && (group.axes >> kPp & 1) != 0;
    int members = std::min(mesh.ranks_per_node(), mesh.world());
    if (ends) members = members / blocks->on_a_node[kPp] * extents[kPp].on_a_node;
    spread.groups_on_a_node = members / spread.on_a_node;
  }
  spread.crosses_leaves = crosses_leaves(mesh, *blocks, extents, group, machine.nodes_per_leaf);
  return spread;
}

GroupSpread spread_by_groups(const Mesh& mesh, Group group, const Machine& machine) {
  std::vector<std::vector<int>> groups = mesh.groups(group);
  for (std::vector<int>& members : groups) {
    for (int& member : members) member = mesh.node_of(member);
  }
  return spread_of(groups, machine);
}

GroupSpread spread_of(const std::vector<std::vector<int>>& groups, const Machine& machine) {
  GroupSpread spread;
  std::map<int, int> crossing;  // groups that leave it, by node
  for (const std::vector<int>& members : groups) {
    std::map<int, int> on;
    for (const int node : members) ++on[node];
    spread.ranks = std::max(spread.ranks, static_cast<int>(members.size()));
    spread.nodes = std::max(spread.nodes, static_cast<int>(on.size()));
    std::set<int> leaves;
    for (const auto& [node, count] : on) {
      spread.on_a_node = std::max(spread.on_a_node, count);
      if (machine.nodes_per_leaf > 0) leaves.insert(node / machine.nodes_per_leaf);
      if (on.size() > 1)
        spread.groups_on_a_node = std::max(spread.groups_on_a_node, ++crossing[node]);
    }
    spread.crosses_leaves |= leaves.size() > 1;
  }
  return spread;
}

std::vector<int> messages_leaving(const Mesh& mesh) {
  const std::optional<Blocks> blocks = blocks_of(mesh);
  if (!blocks) return messages_leaving_by_pipelines(mesh);
  const int stages = mesh.size(Axis::pp), inner = blocks->on_a_node[kPp];
  const int each = std::min(mesh.ranks_per_node(), mesh.world()) / inner;  // ranks of a stage
  std::vector<int> leaving(static_cast<std::size_t>(stages) * stages);
  for (int a = 0; a < stages; ++a) {
    for (const int b : {a - 1, a + 1, stages - 1 - a}) {
      const int to = (b + stages) % stages;
      if (a / inner != to / inner) leaving[a * stages + to] = each;
    }
  }
  return leaving;
}

std::vector<int> messages_leaving_by_pipelines(const Mesh& mesh) {
  const int stages = mesh.size(Axis::pp);
  std::vector<int> leaving(static_cast<std::size_t>(stages) * stages);
  std::map<std::array<int, 3>, int> of_node;  // (from, to, node)
  for (const std::vector<int>& pipeline : mesh.groups(group_of(Axis::pp))) {
    for (int a = 0; a < stages; ++a) {
      for (const int to :
           std::set<int>{(a + stages - 1) % stages, (a + 1) % stages, stages - 1 - a}) {
        if (mesh.node_of(pipeline[a]) == mesh.node_of(pipeline[to])) continue;
        int& most = leaving[a * stages + to];
        most = std::max(most, ++of_node[{a, to, mesh.node_of(pipeline[a])}]);
      }
    }
  }
  return leaving;
}

}  // namespace mb
