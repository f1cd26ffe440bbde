#include "bench/choose/mesh_links.h"

namespace mb {

const GroupSpread& MeshLinks::spread(Group group) const {
  const auto [known, is_new] = spreads_.try_emplace(group);
  if (is_new) known->second = spread_of(mesh_, group, machine_);
  return known->second;
}

double MeshLinks::seconds(CollectiveKind kind, Group group, std::int64_t bytes) const {
  return group_seconds(kind, bytes, spread(group), machine_);
}

const MeshLinks::Hops& MeshLinks::hops(std::int64_t bytes) const {
  const auto [known, is_new] = hops_.try_emplace(bytes);
  const int ranks = mesh_.size(Axis::pp);
  for (int rank = 0; is_new && rank < ranks; ++rank) {
    known->second.next.push_back(network_.seconds(rank, (rank + 1) % ranks, bytes));
    known->second.before.push_back(network_.seconds(rank, (rank + ranks - 1) % ranks, bytes));
  }
  return known->second;
}

}  // namespace mb
