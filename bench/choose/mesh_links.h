// The links of a mesh, each asked of the machine once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "parallel/cost/machine.h"
#include "parallel/cost/network.h"
#include "parallel/mesh/mesh.h"

namespace mb {

// Keeps references.
class MeshLinks {
 public:
  MeshLinks(const Mesh& mesh, const Machine& machine)
      : mesh_(mesh), machine_(machine), network_(mesh, machine) {}
  const GroupSpread& spread(Group group) const;
  double seconds(CollectiveKind kind, Group group, std::int64_t bytes) const;
  // Messages from each pipeline rank to the next, and to the one before; those of the ends to each
  // other. In so many parts (parts_of_message).
  struct Hops {
    std::vector<double> next, before;
  };
  Hops hops(std::int64_t bytes, int parts) const;

 private:
  const Mesh& mesh_;
  const Machine& machine_;
  const Network network_;
  mutable std::map<Group, GroupSpread> spreads_;
};

}  // namespace mb
