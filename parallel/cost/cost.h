// What an instruction costs in virtual time, in integer nanoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/plan/plan.h"

namespace mb {

// What an instruction takes from others of its rank that run beside it, and what that does to it.
struct Interference {
  double sms = 0, memory = 0;  // shares that a collective takes while it is on its way
  double nic = 0;              // share that a collective or message between nodes takes of it
  bool memory_bound = false;   // of a computation: it goes without the one or the other
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Of a compute or copy: its duration. Of a collective, send or receive: its transfer, once all
  // have arrived.
  virtual std::int64_t duration_ns(const Plan& plan, int stage,
                                   const Instruction& instruction) const = 0;
  // What it takes the host to launch it. The host launches in list order and runs ahead of the
  // device, until something makes it wait (see walk.h).
  virtual bool has_host() const { return false; }  // else launching takes no time
  virtual bool host_waits_for_collectives() const { return false; }
  virtual std::int64_t launch_ns(const Instruction&) const { return 0; }
  // From the end of an instruction to the start of the next on its stream, and of one on another
  // stream that waits for it.
  virtual std::int64_t gap_ns() const { return 0; }
  virtual std::int64_t handoff_ns() const { return 0; }
  // Whether computation and collectives slow each other.
  virtual bool has_interference() const { return false; }
  virtual Interference interference(const Plan&, int, const Instruction&) const { return {}; }
  // How much longer collectives take while computation runs, as a share.
  virtual double comm_slowed_by() const { return 0; }
};

// Of a machine with op_times=measured; else none.
OpTimes measured_ops(const Machine& machine);
// Of the different operations that the Plan runs, how many take their measured time, and how many
// the model's.
struct OpCoverage {
  int measured = 0, modelled = 0;
};
OpCoverage op_coverage(const Plan& plan, const Machine& machine);

// Operations by their measured times, else kernel by kernel (op_cost.h), collectives and messages
// over the links and NICs that their groups share (network.h); copies to and from the second memory
// space take `host`.
std::unique_ptr<CostModel> make_roofline_cost(const Plan& plan, const Machine& machine,
                                              const Stack& stack = {});

// For closed forms: every layer's forward and the two halves of its backward take a fixed time, all
// else but the hops between stages none.
struct FixedCost {
  std::int64_t layer_forward_ns = 0, layer_input_ns = 0, layer_weight_ns = 0;
  std::int64_t hop_ns = 0;  // of a send
};
std::unique_ptr<CostModel> make_fixed_cost(const FixedCost& cost);

}  // namespace mb
