#include "parallel/exec/predict.h"

#include <algorithm>
#include <cmath>

#include "parallel/exec/sim_executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// Of a normal distribution, 80 % lie within so many standard deviations.
constexpr double kEightyPercent = 1.2816;
// Spread of a stack without measured rows: what shipped constants reach on stacks that they were
// not fitted on.
constexpr double kUnfitted = 0.15;
// What else widens it, as standard deviations of the logarithm: constants of another machine (those
// that one stack has on two machines differ by a tenth), and each doubling of the nodes.
constexpr double kOtherMachine = 0.1, kDoublingOfNodes = 0.03;

struct Walked {
  double step_s = 0, compute_s = 0;
};

Walked walk(const Plan& plan, const Machine& machine, const Stack& stack) {
  const auto cost = make_roofline_cost(plan, machine, stack);
  const Timeline timeline = simulate(plan, *cost);
  const Span window = timeline.window();
  Walked walked{.step_s = 1e-9 * static_cast<double>(window.end_ns - window.start_ns)};
  for (std::size_t stage = 0; stage < plan.programs.size(); ++stage) {
    std::int64_t busy = 0;
    const Program& program = plan.programs[stage];
    for (std::size_t id = 0; id < program.instructions.size(); ++id) {
      if (!std::holds_alternative<Compute>(program.instructions[id].action)) continue;
      const Span& span = timeline.lanes[stage][id];
      busy += span.end_ns - span.start_ns;
    }
    walked.compute_s = std::max(walked.compute_s, 1e-9 * static_cast<double>(busy));
  }
  return walked;
}

}  // namespace

StepMemory memory_of(const Plan& plan, const Machine& machine) {
  constexpr std::int64_t kSegment = 2 << 20, kBlock = 512;
  StepMemory most;
  for (const Program& program : plan.programs) {
    StepMemory memory{.planned = memory_peak(program).total_bytes};
    for (const Tensor& tensor : program.tensors) {
      if (tensor.persistent && tensor.base == kNone && !tensor.host)
        memory.rounding += (kBlock - tensor.bytes % kBlock) % kBlock;
    }
    memory.rounding += kSegment - memory.planned % kSegment;
    if (memory.planned > most.planned) most = memory;
  }
  most.fragmentation = most.planned / 50;
  most.library = std::llround(machine.library_gb * 1e9);
  most.context = std::llround(machine.context_gb * 1e9);
  return most;
}

StepMemory memory_of_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                          const Machine& machine) {
  StepOptions some = options;
  some.micro_batches = rounds_of(mesh, options).walked;
  return memory_of(plan_step(model, mesh, some), machine);
}

StepInterval interval_of(double step_s, const Mesh& mesh, const Machine& machine,
                         const Stack& stack) {
  StepInterval interval;
  double variance = stack.log_sigma * stack.log_sigma;
  const auto widen = [&](double sigma, std::string reason) {
    variance += sigma * sigma;
    interval.extrapolated.push_back(std::move(reason));
  };
  if (stack.log_sigma == 0) widen(kUnfitted, cat("stack=", stack.name, " has no measured rows"));
  if (!stack.fitted_machine.empty() && stack.fitted_machine != machine.name)
    widen(kOtherMachine, cat("stack=", stack.name, " was measured on ", stack.fitted_machine,
                             ", not on ", machine.name));
  const int nodes = mesh.node_of(mesh.world() - 1) + 1;
  if (stack.fitted_nodes > 0 && nodes > stack.fitted_nodes)
    widen(kDoublingOfNodes * std::log2(1.0 * nodes / stack.fitted_nodes),
          cat(nodes, " nodes, where stack=", stack.name, " was measured on at most ",
              stack.fitted_nodes));
  const double sigma = std::sqrt(variance);
  interval.low_s = step_s * std::exp(-kEightyPercent * sigma);
  interval.high_s = step_s * std::exp(kEightyPercent * sigma);
  return interval;
}

std::vector<std::string> not_modelled(const ModelConfig& model, const Mesh& mesh,
                                      const StepOptions& options) {
  std::vector<std::string> missing = {"clocks by load and heat", "kernels chosen by shape"};
  if (mesh.world() > 1) missing.emplace_back("jitter and stragglers between ranks");
  if (mesh.size(Axis::dp) > 1 &&
      (options.overlap.reduce || (options.zero && options.overlap.gather)))
    missing.emplace_back("what overlapped communication takes from computation");
  if (model.experts > 1) missing.emplace_back("uneven loads of experts");
  return missing;
}

Rounds rounds_of(const Mesh& mesh, const StepOptions& options) {
  const PipelineShape shape = pipeline_shape(mesh, options);
  const int ranks = mesh.size(Axis::pp), all = options.micro_batches;
  const int round = shape.chunks > 1 ? shape.group_or_ranks() : std::min(ranks, 2);
  const int settled = shape.chunks > 1 ? 3 * std::max(ranks, round) : ranks + 2 * round;
  if (!options.recompute_micro_batches.has(all - 1)) return {all, 1};
  if (all <= settled + 2 * round) return {all, 1};
  return {settled + all % round, round};
}

Prediction predict(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                   const Machine& machine, const Stack& stack) {
  const Rounds rounds = rounds_of(mesh, options);
  StepOptions some = options;
  some.micro_batches = rounds.walked;
  const Plan plan = plan_step(model, mesh, some);
  Walked walked = walk(plan, machine, stack);
  Prediction p{.memory = memory_of(plan, machine),
               .simulated_micro_batches = rounds.walked,
               .ops = op_coverage(plan, machine)};
  if (rounds.walked < options.micro_batches) {
    some.micro_batches -= rounds.round;
    const Walked before = walk(plan_step(model, mesh, some), machine, stack);
    const double more = 1.0 * (options.micro_batches - rounds.walked) / rounds.round;
    walked.step_s += more * (walked.step_s - before.step_s);
    walked.compute_s += more * (walked.compute_s - before.compute_s);
  }
  p.step_s = walked.step_s;
  p.busiest_compute_s = walked.compute_s;
  p.interval = interval_of(p.step_s, mesh, machine, stack);
  p.not_modelled = not_modelled(model, mesh, options);
  return p;
}

}  // namespace mb
