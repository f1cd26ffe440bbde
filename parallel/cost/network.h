// Collectives and messages of a mesh on a machine: which links they take, how many share them, and
// how long that takes by the best algorithm and protocol of NCCL.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/cost/machine.h"
#include "parallel/mesh/mesh.h"

namespace mb {

// How the busiest of all groups of a kind lies on the nodes.
struct GroupSpread {
  int ranks = 1, nodes = 1;
  int on_a_node = 1;         // most of its members that share a node
  int groups_on_a_node = 1;  // most of them that a node sends for at once, and so share its NICs
  bool crosses_leaves = false;
};
GroupSpread spread_of(const Mesh& mesh, Group group, const Machine& machine);
// Of groups that are at it at once, each as the nodes of its members.
GroupSpread spread_of(const std::vector<std::vector<int>>& groups, const Machine& machine);

// What one member's ring, or its message, gets of the NICs of its node: an equal share of all,
// and no more than its members can drive. 1e9 bytes per second, one direction.
double nic_share_gb_per_s(const GroupSpread& spread, const Machine& machine);

// One operation on every group of the kind at once. Within a node by the machine's measured curves
// where there are any, else a ring; between nodes the fastest of ring and tree under the protocols
// of NCCL: latency + factor * bytes / bandwidth, with n ranks on N nodes
//   latency = base + hops; ring: phases * ((N - 1) net + (n - N) link), tree: 2 (ceil(log2 N) net +
//   (n / N - 1) link).
double group_seconds(CollectiveKind kind, std::int64_t bytes, const GroupSpread& spread,
                     const Machine& machine);

// The same by a given algorithm, for a group on `nodes`: the rounds of its steps over links and
// NICs (collective_cost.h). By own and native, and kinds that the algorithm lacks, as above.
double group_seconds(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                     std::span<const int> nodes, const GroupSpread& spread, const Machine& machine);

class Network {
 public:
  Network(const Mesh& mesh, const Machine& machine);
  double seconds(CollectiveKind kind, Group group, std::int64_t bytes) const;
  // A message between stages `from` and `to`.
  double seconds(int from, int to, std::int64_t bytes) const;

 private:
  const Mesh& mesh_;
  const Machine& machine_;
  mutable std::map<Group, GroupSpread> spreads_;
  int stages_;
  // By stage and peer: most ranks of a node whose messages leave it; 0 where all stay.
  std::vector<int> leaving_;
};

}  // namespace mb
