#include "bench/fit/width.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "parallel/cost/cost.h"
#include "parallel/cost/network.h"
#include "parallel/cost/op_cost.h"
#include "parallel/exec/sim_executor.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Relative errors of what ships: matmuls as machine.cc has them on matmuls that it was not fitted
// on. The others are assumed, as a ranking of what to measure next needs no better: curves of NCCL
// on another system of the kind, alpha-beta between nodes, kernels of another program, a host that
// nobody has timed, and a measured time when it is measured again.
constexpr double kShippedCurve = 0.06, kFormula = 0.25, kMatmul = 0.07, kKernel = 0.15,
                 kMeasured = 0.02, kHost = 0.5, kTracedHost = 0.1;
constexpr double kLikelyHostUs = 8;

// A cost model of which a part is slower.
class Slower final : public CostModel {
 public:
  using Part = std::function<bool(const Instruction&)>;
  Slower(const CostModel& cost, Part part, double factor)
      : cost_(cost), part_(std::move(part)), factor_(factor) {}
  std::int64_t duration_ns(const Plan& plan, int stage, const Instruction& i) const override {
    const std::int64_t ns = cost_.duration_ns(plan, stage, i);
    return part_(i) ? std::llround(static_cast<double>(ns) * factor_) : ns;
  }
  bool has_host() const override { return cost_.has_host(); }
  bool host_waits_for_collectives() const override { return cost_.host_waits_for_collectives(); }
  std::int64_t launch_ns(const Instruction& i) const override { return cost_.launch_ns(i); }

 private:
  const CostModel& cost_;
  Part part_;
  double factor_;
};

double step_s(const Plan& plan, const CostModel& cost) {
  const Span window = simulate(plan, cost).window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

struct Source {
  WidthPart part;
  Slower::Part slower;
};

std::string op_class(const Op& op, const OpTimes& measured, const Stack& stack) {
  if (measured.seconds(op)) return "operations by their measured times";
  Kernel::Unit unit = Kernel::Unit::memory;
  for (const Kernel& kernel : kernels_of(op, stack))
    if (kernel.flops > 0) unit = kernel.unit;
  return unit == Kernel::Unit::matmul      ? "matmuls by the model"
         : unit == Kernel::Unit::attention ? "attention by the model"
                                           : "kernels of memory by the model";
}

void add_computation(const Plan& plan, const Machine& machine, const Stack& stack,
                     const KnownErrors& known, std::vector<Source>& sources) {
  const OpTimes measured = measured_ops(machine);
  std::map<std::string, std::vector<bool>> classes;  // ops by Plan::ops
  for (std::size_t op = 0; op < plan.ops.size(); ++op) {
    auto& members = classes[op_class(plan.ops[op], measured, stack)];
    members.resize(plan.ops.size());
    members[op] = true;
  }
  for (auto& [name, members] : classes) {
    const bool matmuls = name.starts_with("matmul"), own = name.starts_with("operations");
    const double error = own       ? std::max(kMeasured, known.operations)
                         : matmuls ? (known.matmul > 0 ? known.matmul : kMatmul)
                                   : kKernel;
    sources.push_back(
        {{.name = name,
          .measure = own ? "the same operations again, on a quiet machine at sustained clocks"
                         : "the Plan's own operations: a run of the case with --trace, or for "
                           "matmuls a table of m,n,k,dtype,time_us",
          .error = error},
         [members](const Instruction& i) {
           const auto* compute = std::get_if<Compute>(&i.action);
           return compute && members[compute->op];
         }});
  }
}

void add_collectives(const Plan& plan, const Machine& machine, const KnownErrors& known,
                     std::vector<Source>& sources) {
  std::map<std::string, std::pair<std::vector<std::pair<CollectiveKind, Group>>, double>> groups;
  bool messages = false;
  for (const Program& program : plan.programs) {
    for (const Instruction& i : program.instructions) {
      messages |= std::holds_alternative<Send>(i.action);
      const auto* collective = std::get_if<Collective>(&i.action);
      if (!collective) continue;
      const GroupSpread spread = spread_of(plan.mesh, collective->group, machine);
      if (spread.ranks < 2) continue;
      const std::string name = group_name(collective->kind, spread.ranks, spread.nodes);
      double error = kFormula;
      if (const auto found = known.curves.find(name);
          found != known.curves.end() && spread.groups_on_a_node == 1) {
        error = found->second;
      } else if (spread.nodes > 1) {
        error = known.nic > 0 ? known.nic : kFormula;
      } else if (machine.curves != "none") {
        error = kShippedCurve;
      }
      auto& [members, largest] = groups[name];
      members.emplace_back(collective->kind, collective->group);
      largest = std::max(largest, error);
    }
  }
  for (auto& [name, group] : groups) {
    auto& [members, error] = group;
    sources.push_back({{.name = name, .measure = "nccl-tests' log of " + name, .error = error},
                       [members](const Instruction& i) {
                         const auto* c = std::get_if<Collective>(&i.action);
                         return c && std::find(members.begin(), members.end(),
                                               std::pair(c->kind, c->group)) != members.end();
                       }});
  }
  if (messages)
    sources.push_back({{.name = "messages between stages",
                        .measure = "nccl-tests' sendrecv log over 2 ranks, and over 2 nodes",
                        .error = known.nic > 0 ? known.nic : kFormula},
                       [](const Instruction& i) {
                         return std::holds_alternative<Send>(i.action) ||
                                std::holds_alternative<Recv>(i.action);
                       }});
}

// What the host's part does to a step: a stack without one is held to what hosts are likely to
// take.
WidthPart host_part(const Plan& plan, const Machine& machine, const Stack& stack, double step,
                    const KnownErrors& known) {
  const double error = known.host ? kTracedHost : kHost;
  Stack slower = stack;
  slower.host_us = stack.host_us > 0 ? stack.host_us * (1 + error) : kLikelyHostUs;
  const double then = step_s(plan, *make_roofline_cost(plan, machine, slower));
  return {.name = "host",
          .measure = "a traced step of any case (PyTorch's profiler, or a run with --trace)",
          .error = error,
          .effect = then / step - 1};
}

}  // namespace

std::string group_name(CollectiveKind kind, int ranks, int nodes) {
  return cat(name_of(kind), " over ", ranks, " ranks on ", nodes, nodes == 1 ? " node" : " nodes");
}

std::vector<WidthPart> width_of(const Plan& plan, const Machine& machine, const Stack& stack,
                                const KnownErrors& known) {
  const auto cost = make_roofline_cost(plan, machine, stack);
  const double step = step_s(plan, *cost);
  std::vector<Source> sources;
  add_computation(plan, machine, stack, known, sources);
  add_collectives(plan, machine, known, sources);
  std::vector<WidthPart> parts;
  for (Source& source : sources) {
    const Slower slower(*cost, source.slower, 1 + source.part.error);
    source.part.effect = step_s(plan, slower) / step - 1;
    parts.push_back(source.part);
  }
  parts.push_back(host_part(plan, machine, stack, step, known));
  double squares = 0;
  for (const WidthPart& part : parts) squares += part.effect * part.effect;
  for (WidthPart& part : parts) part.share = squares > 0 ? part.effect * part.effect / squares : 0;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const WidthPart& a, const WidthPart& b) { return a.share > b.share; });
  return parts;
}

}  // namespace mb
