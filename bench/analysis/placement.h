// What an order of axes over ranks puts on which links: from group lists and the Plan's traffic
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/cost/cost.h"
#include "parallel/cost/wire.h"
#include "parallel/mesh/mesh.h"
#include "parallel/plan/plan.h"

namespace mb {

// Orders that put the same ranks of the mesh together on nodes, so that nothing tells them apart.
struct OrderClass {
  Mesh mesh;                        // in the first of them
  std::vector<std::string> orders;  // "tp,dp,pp": axes of more than one rank, fastest first
};
// Of all orders of such axes, in the order of the text that names the first of each class.
std::vector<OrderClass> distinct_orders(const Mesh& mesh);
// The mesh's own, as above.
std::string order_text(const Mesh& mesh);

// Communication of one axis in a step, as CommAxes names it.
struct AxisPlacement {
  std::string axis;
  int ranks = 0;                     // of a group; 2 for messages
  std::int64_t groups = 0;           // process groups, or pairs of ranks that send to each other
  std::int64_t crossing = 0;         // of those, with members on several nodes
  LinkClass link = LinkClass::none;  // of the group that is spread most
  double intra_bytes = 0, inter_bytes = 0;  // sent over all ranks, by rings
  double seconds = 0;  // of a rank's operations one after the other; the largest stage
};
std::vector<AxisPlacement> place_axes(const Plan& plan, const CostModel& cost);

}  // namespace mb
