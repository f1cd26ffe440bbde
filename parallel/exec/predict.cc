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

}  // namespace

StepInterval interval_of(double step_s, const Stack& stack) {
  StepInterval interval;
  double sigma = stack.log_sigma;
  if (sigma == 0) {
    sigma = kUnfitted;
    interval.extrapolated.push_back(cat("stack=", stack.name, " has no measured rows"));
  }
  interval.low_s = step_s * std::exp(-kEightyPercent * sigma);
  interval.high_s = step_s * std::exp(kEightyPercent * sigma);
  return interval;
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
  p.interval = interval_of(p.step_s, stack);
  return p;
}

}  // namespace mb
