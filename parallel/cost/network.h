// Collectives and messages of a mesh on a machine: which links they take, how many share them, and
// how long that takes by the best algorithm and protocol of NCCL.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/spread.h"
#include "parallel/cost/stack.h"
#include "parallel/mesh/mesh.h"

namespace mb {

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

// In how many parts tensor ranks send a message between stages: one, or as many as there are of
// them, who all hold what they send unless rows are divided, and then gather what they received.
int parts_of_message(const Mesh& mesh, const Stack& stack, bool rows_divided);

class Network {
 public:
  Network(const Mesh& mesh, const Machine& machine);
  double seconds(CollectiveKind kind, Group group, std::int64_t bytes) const;
  // A message between stages `from` and `to`, in so many parts (parts_of_message).
  double seconds(int from, int to, std::int64_t bytes, int parts = 1) const;

  bool crosses_nodes(Group group) const { return spread_of(mesh_, group, machine_).nodes > 1; }
  bool crosses_nodes(int from, int to) const { return leaving_[from * stages_ + to] > 0; }

 private:
  const Mesh& mesh_;
  const Machine& machine_;
  mutable std::map<std::tuple<CollectiveKind, Group, std::int64_t>, double> seconds_;
  // Where the machine has its time as steps had it.
  std::optional<double> measured(CollectiveKind kind, const GroupSpread& spread,
                                 std::int64_t bytes) const;

  int stages_;
  std::vector<int> leaving_;  // messages_leaving
};

}  // namespace mb
