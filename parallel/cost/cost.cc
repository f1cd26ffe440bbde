#include "parallel/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "parallel/cost/network.h"
#include "parallel/cost/op_cost.h"

namespace mb {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

// What autograd's engine, which runs no Python, takes to launch a kernel, as a share of what a
// program of Python takes.
constexpr double kAutogradLaunch = 0.4;

bool is_backward(Pass pass) {
  return pass == Pass::backward || pass == Pass::input_grad || pass == Pass::weight_grad;
}

// Whether tensor ranks divide tokens between the parts that they divide otherwise: then they sum
// into parts.
bool divides_rows(const Plan& plan) {
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      const auto* collective = std::get_if<Collective>(&instruction.action);
      if (collective && collective->group == group_of(Axis::tp) &&
          collective->kind == CollectiveKind::reduce_scatter)
        return true;
    }
  }
  return false;
}

class RooflineCost final : public CostModel {
 public:
  RooflineCost(const Plan& plan, const Machine& machine, const Stack& stack)
      : machine_(machine),
        stack_(stack),
        network_(plan.mesh, machine_),
        comm_share_(stack.comm_share),
        host_waits_(stack.host_waits),
        eager_(stack.eager),
        parts_(parts_of_message(plan.mesh, stack, divides_rows(plan))) {
    const OpTimes measured = measured_ops(machine);
    for (const Op& op : plan.ops) {
      memory_bound_.push_back(is_memory_bound(op, machine, stack));
      const auto seconds = measured.seconds(op);
      op_ns_.push_back(to_ns(seconds ? *seconds : op_seconds(op, machine, stack)));
      launch_ns_.push_back(
          to_ns(1e-6 * stack.host_us * static_cast<double>(kernels_of(op, stack).size())));
    }
    call_ns_ = to_ns(1e-6 * stack.host_us);
  }

  std::int64_t duration_ns(const Plan& plan, int stage,
                           const Instruction& instruction) const override {
    if (const auto* compute = std::get_if<Compute>(&instruction.action)) return op_ns_[compute->op];
    const Program& program = plan.programs[stage];
    const auto bytes = payload_bytes(program, instruction);
    if (const auto* collective = std::get_if<Collective>(&instruction.action))
      return to_ns(network_.seconds(collective->kind, collective->group, bytes) / comm_share_);
    if (std::holds_alternative<Copy>(instruction.action)) {
      const bool crosses = program.tensors[program.reads(instruction)[0]].host !=
                           program.tensors[program.writes(instruction)[0]].host;
      if (crosses)
        return to_ns(machine_.host.latency_us * 1e-6 +
                     static_cast<double>(bytes) / (machine_.host.gb_per_s * 1e9));
      return to_ns(2.0 * static_cast<double>(bytes) / (machine_.memory_gb_per_s * 1e9));
    }
    const auto* send = std::get_if<Send>(&instruction.action);
    const int from = send ? stage : std::get<Recv>(instruction.action).from,
              to = send ? send->to : stage;
    return to_ns(network_.seconds(from, to, bytes, parts_) / comm_share_);
  }

  std::int64_t gap_ns() const override { return to_ns(1e-6 * machine_.gap_us); }
  std::int64_t handoff_ns() const override { return to_ns(1e-6 * machine_.handoff_us); }
  bool has_interference() const override {
    return stack_.comm_sm_share > 0 || stack_.comm_slowed_by > 0 || stack_.shares_nics;
  }
  double comm_slowed_by() const override { return stack_.comm_slowed_by; }
  Interference interference(const Plan& plan, int stage,
                            const Instruction& instruction) const override {
    if (const auto* compute = std::get_if<Compute>(&instruction.action))
      return {.memory_bound = memory_bound_[compute->op]};
    const double nic = stack_.shares_nics && crosses_nodes(stage, instruction) ? 1 : 0;
    if (!std::holds_alternative<Collective>(instruction.action)) return {.nic = nic};
    if (stack_.comm_sm_share == 0) return {.nic = nic};
    // What a member sends, receives and adds up passes its memory some three times.
    constexpr double kPasses = 3;
    const double bytes = kPasses *
                         static_cast<double>(payload_bytes(plan.programs[stage], instruction)),
                 seconds = 1e-9 * static_cast<double>(duration_ns(plan, stage, instruction));
    const double rate = seconds > 0 ? bytes / seconds : 0;
    return {.sms = stack_.comm_sm_share,
            .memory = std::min(0.9, rate / (machine_.memory_gb_per_s * 1e9)),
            .nic = nic};
  }

  bool has_host() const override { return call_ns_ > 0; }
  bool host_waits_for_collectives() const override { return host_waits_; }
  std::int64_t launch_ns(const Instruction& instruction) const override {
    const auto* compute = std::get_if<Compute>(&instruction.action);
    const std::int64_t ns = compute ? launch_ns_[compute->op] : call_ns_;
    return eager_ && is_backward(instruction.label.pass)
               ? std::llround(kAutogradLaunch * static_cast<double>(ns))
               : ns;
  }

 private:
  bool crosses_nodes(int stage, const Instruction& instruction) const {
    if (const auto* collective = std::get_if<Collective>(&instruction.action))
      return network_.crosses_nodes(collective->group);
    if (const auto* send = std::get_if<Send>(&instruction.action))
      return network_.crosses_nodes(stage, send->to);
    const auto* recv = std::get_if<Recv>(&instruction.action);
    return recv && network_.crosses_nodes(recv->from, stage);
  }

  Machine machine_;
  Stack stack_;
  Network network_;
  double comm_share_;
  bool host_waits_, eager_;
  int parts_;                                    // of a message between stages
  std::vector<bool> memory_bound_;               // by Plan::ops
  std::vector<std::int64_t> op_ns_, launch_ns_;  // by Plan::ops
  std::int64_t call_ns_;
};

class FixedCostModel final : public CostModel {
 public:
  explicit FixedCostModel(const FixedCost& cost) : cost_(cost) {}
  std::int64_t duration_ns(const Plan& plan, int, const Instruction& instruction) const override {
    if (const auto* compute = std::get_if<Compute>(&instruction.action)) {
      // Each layer has one of these, and one weight gradient of qkv.
      if (std::holds_alternative<Attention>(plan.op(*compute).kind)) return cost_.layer_forward_ns;
      if (std::holds_alternative<AttentionGradient>(plan.op(*compute).kind))
        return cost_.layer_input_ns;
      const auto* matmul = std::get_if<Matmul>(&plan.op(*compute).kind);
      const bool weight = matmul && matmul->to_main && plan.site(instruction) == "attention.qkv";
      return weight ? cost_.layer_weight_ns : 0;
    }
    return std::holds_alternative<Send>(instruction.action) ||
                   std::holds_alternative<Recv>(instruction.action)
               ? cost_.hop_ns
               : 0;
  }

 private:
  FixedCost cost_;
};

}  // namespace

OpTimes measured_ops(const Machine& machine) {
  static const std::vector<OpTime> none;
  return OpTimes(machine.op_times == "measured" ? machine.measured.ops : none);
}

OpCoverage op_coverage(const Plan& plan, const Machine& machine) {
  std::vector<bool> runs(plan.ops.size());  // the table may hold others
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions)
      if (const auto* compute = std::get_if<Compute>(&instruction.action)) runs[compute->op] = true;
  }
  const OpTimes times = measured_ops(machine);
  OpCoverage coverage;
  for (std::size_t op = 0; op < runs.size(); ++op) {
    if (!runs[op]) continue;
    ++(times.seconds(plan.ops[op]) ? coverage.measured : coverage.modelled);
  }
  return coverage;
}

std::unique_ptr<CostModel> make_roofline_cost(const Plan& plan, const Machine& machine,
                                              const Stack& stack) {
  return std::make_unique<RooflineCost>(plan, machine, stack);
}
std::unique_ptr<CostModel> make_fixed_cost(const FixedCost& cost) {
  return std::make_unique<FixedCostModel>(cost);
}

}  // namespace mb
