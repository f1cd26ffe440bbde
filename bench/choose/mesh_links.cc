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

MeshLinks::Hops MeshLinks::hops(std::int64_t bytes, int parts) const {
  Hops hops;
  const int ranks = mesh_.size(Axis::pp);
  for (int rank = 0; rank < ranks; ++rank) {
    hops.next.push_back(network_.seconds(rank, (rank + 1) % ranks, bytes, parts));
    hops.before.push_back(network_.seconds(rank, (rank + ranks - 1) % ranks, bytes, parts));
  }
  return hops;
}

}  // namespace mb
