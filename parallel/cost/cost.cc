#include "parallel/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace mb {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

class RooflineCost final : public CostModel {
 public:
  RooflineCost(const Plan& plan, const Machine& machine)
      : machine_(machine),
        stages_(plan.mesh.size(Axis::pp)),
        hop_crosses_nodes_(static_cast<std::size_t>(stages_) * stages_) {
    for (const Op& op : plan.ops) {
      const double compute =
          flops(op) / (machine.peak_tflops(op.dtype) * 1e12 * machine.matmul_efficiency);
      const double memory =
          bytes_moved(op) / (machine.memory_gb_per_s * 1e9 * machine.memory_efficiency);
      op_ns_.push_back(to_ns(machine.launch_us * 1e-6 + std::max(compute, memory)));
    }
    find_levels(plan);
    find_hops_between_nodes(plan.mesh);
  }

  std::int64_t duration_ns(const Plan& plan, int stage,
                           const Instruction& instruction) const override {
    if (const auto* compute = std::get_if<Compute>(&instruction.action)) return op_ns_[compute->op];
    const auto bytes = payload_bytes(plan.programs[stage], instruction);
    if (const auto* collective = std::get_if<Collective>(&instruction.action)) {
      const Level level = levels_.at(collective->group);
      return to_ns(
          collective_seconds(collective->kind, bytes, level.ranks, link(level.crosses_nodes)));
    }
    if (std::holds_alternative<Copy>(instruction.action)) {
      const Program& program = plan.programs[stage];
      const bool crosses = program.tensors[program.reads(instruction)[0]].host !=
                           program.tensors[program.writes(instruction)[0]].host;
      if (crosses)
        return to_ns(machine_.host.latency_us * 1e-6 +
                     static_cast<double>(bytes) / (machine_.host.gb_per_s * 1e9));
      return to_ns(2.0 * static_cast<double>(bytes) / (machine_.memory_gb_per_s * 1e9));
    }
    const auto* send = std::get_if<Send>(&instruction.action);
    const int peer = send ? send->to : std::get<Recv>(instruction.action).from;
    const Link& hop = link(hop_crosses_nodes_[stage * stages_ + peer]);
    return to_ns(hop.latency_us * 1e-6 + static_cast<double>(bytes) / (hop.gb_per_s * 1e9));
  }

 private:
  struct Level {
    int ranks;
    bool crosses_nodes;
  };
  const Link& link(bool crosses_nodes) const {
    return crosses_nodes ? machine_.inter : machine_.intra;
  }
  void find_levels(const Plan& plan) {
    for (const Program& program : plan.programs) {
      for (const Instruction& instruction : program.instructions) {
        const auto* collective = std::get_if<Collective>(&instruction.action);
        if (!collective || levels_.contains(collective->group)) continue;
        const Group group = collective->group;
        levels_[group] = {plan.mesh.group_size(group), plan.mesh.crosses_nodes(group)};
      }
    }
  }
  void find_hops_between_nodes(const Mesh& mesh) {
    for (const std::vector<int>& pipeline : mesh.groups(group_of(Axis::pp))) {
      for (int a = 0; a < stages_; ++a) {
        for (int b = 0; b < stages_; ++b) {
          if (mesh.node_of(pipeline[a]) != mesh.node_of(pipeline[b]))
            hop_crosses_nodes_[a * stages_ + b] = true;
        }
      }
    }
  }

  Machine machine_;
  std::vector<std::int64_t> op_ns_;  // by Plan::ops
  std::map<Group, Level> levels_;    // of all groups of the plan
  int stages_;
  std::vector<bool> hop_crosses_nodes_;  // by stage and peer: some pair of ranks is on two nodes
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

std::unique_ptr<CostModel> make_roofline_cost(const Plan& plan, const Machine& machine) {
  return std::make_unique<RooflineCost>(plan, machine);
}
std::unique_ptr<CostModel> make_fixed_cost(const FixedCost& cost) {
  return std::make_unique<FixedCostModel>(cost);
}

}  // namespace mb
