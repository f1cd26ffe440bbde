// What an instruction costs in virtual time, in integer nanoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/cost/collective_cost.h"
#include "parallel/cost/machine.h"
#include "parallel/plan/plan.h"

namespace mb {

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Of a compute or copy: its duration. Of a collective, send or receive: its transfer, once all
  // have arrived.
  virtual std::int64_t duration_ns(const Plan& plan, int stage,
                                   const Instruction& instruction) const = 0;
};

// Operations by roofline, launch + max(flops / (peak * efficiency), bytes / (bandwidth *
// efficiency)); collectives by alpha-beta over a ring: an all-reduce of n bytes over g ranks takes
// 2 (g - 1) (latency + n / g / bandwidth), the others half; a send or shift latency + n /
// bandwidth. The link is `inter` if any group of the kind, or any pair of ranks of the two stages,
// spans nodes; copies to and from the second memory space take `host`.
std::unique_ptr<CostModel> make_roofline_cost(const Plan& plan, const Machine& machine);

// For closed forms: every layer's forward and the two halves of its backward take a fixed time, all
// else but the hops between stages none.
struct FixedCost {
  std::int64_t layer_forward_ns = 0, layer_input_ns = 0, layer_weight_ns = 0;
  std::int64_t hop_ns = 0;  // of a send
};
std::unique_ptr<CostModel> make_fixed_cost(const FixedCost& cost);

}  // namespace mb
