// The orders of a mesh's axes over ranks that may be best: those whose every axis is on links as
// good as in another are left out, as no operation of theirs is faster, and a step is never faster
// for a slower operation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/spread.h"
#include "parallel/mesh/mesh.h"

namespace mb {

// Keeps a reference to the machine, and what it has found of links.
class AxisOrders {
 public:
  explicit AxisOrders(const Machine& machine) : machine_(machine) {}
  // `mesh` in these orders, each once.
  std::vector<Mesh> best_of(const Mesh& mesh);
  std::int64_t dominated() const { return dominated_; }  // orders that were left out

 private:
  using Seconds = std::array<double, 3>;  // at three sizes
  const Seconds& seconds(CollectiveKind kind, const GroupSpread& spread);
  std::vector<double> links_of(const Mesh& mesh);

  const Machine& machine_;
  std::int64_t dominated_ = 0;
  std::map<std::pair<CollectiveKind, std::array<int, 5>>, Seconds> known_;
};

}  // namespace mb
