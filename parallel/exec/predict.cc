#include "parallel/exec/predict.h"

#include <algorithm>
#include <cmath>

#include "parallel/exec/virtual_time.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
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

double step_ns_of(const Timeline& timeline) {
  const Span window = timeline.window();
  return static_cast<double>(window.end_ns - window.start_ns);
}

struct Walked {
  RankClasses classes;
  Timeline timeline;
  double step_ns = 0, even_step_ns = 0, compute_ns = 0;  // whole numbers
};

Walked walk(const Plan& plan, const Machine& machine, const Stack& stack,
            const Imbalance& imbalance) {
  const StepCosts costs = costs_of(plan, *make_roofline_cost(plan, machine, stack));
  const RankClasses classes = RankClasses::folded(plan, imbalance);
  Walked walked{.classes = classes, .timeline = timeline_of(plan, classes, costs)};
  walked.even_step_ns = walked.step_ns = step_ns_of(walked.timeline);
  if (!imbalance.empty())
    walked.even_step_ns = step_ns_of(timeline_of(plan, RankClasses::by_stage(plan), costs));
  for (int c = 0; c < classes.count(); ++c) {
    std::int64_t busy = 0;
    const Program& program = plan.programs[classes.at(c).stage];
    for (std::size_t id = 0; id < program.instructions.size(); ++id) {
      if (!std::holds_alternative<Compute>(program.instructions[id].action)) continue;
      const Span& span = walked.timeline.lanes[c][id];
      busy += span.end_ns - span.start_ns;
    }
    walked.compute_ns = std::max(walked.compute_ns, static_cast<double>(busy));
  }
  return walked;
}

// Ends of a class's computation and collectives, forward ones or all others, in list order.
std::vector<std::int64_t> ends_of(const Plan& plan, const Walked& walked, int of, bool forward) {
  std::vector<std::int64_t> ends;
  const auto& instructions = plan.programs[walked.classes.at(of).stage].instructions;
  for (std::size_t id = 0; id < instructions.size(); ++id) {
    const Instruction& i = instructions[id];
    const bool message =
        std::holds_alternative<Send>(i.action) || std::holds_alternative<Recv>(i.action);
    if (!message && (i.label.pass == Pass::forward) == forward)
      ends.push_back(walked.timeline.lanes[of][id].end_ns);
  }
  return ends;
}

// Whether a round more has moved all computation and all collectives in the last half of a step, or
// of its forward passes, by the same time. Then the round has left the pipeline as it found it, and
// so does every other: its times follow from those of the round before by maxima and sums alone
// (Baccelli et al., Synchronization and Linearity, 1992). Messages lie between computations, and
// may still have slack that differs.
bool has_settled(const Plan& plan_before, const Walked& before, const Plan& plan,
                 const Walked& after) {
  const auto moved = static_cast<std::int64_t>(after.step_ns - before.step_ns);
  for (const bool forward : {true, false}) {
    std::optional<std::int64_t> all;
    if (!forward) all = moved;
    for (int c = 0; c < after.classes.count(); ++c) {
      const std::vector<std::int64_t> a = ends_of(plan_before, before, c, forward),
                                      b = ends_of(plan, after, c, forward);
      for (std::size_t k = 1; k <= std::min(a.size() / 2, b.size()); ++k) {
        const std::int64_t by = b[b.size() - k] - a[a.size() - k];
        if (by != all.value_or(by)) return false;
        all = by;
      }
    }
  }
  return true;
}

}  // namespace

StepMemory memory_of_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                          const Machine& machine, const Stack& stack) {
  StepOptions some = options;
  some.micro_batches = rounds_of(mesh, options).walked;
  return memory_of(plan_step(model, mesh, some), machine, stack);
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
                                      const StepOptions& options, const Stack& stack,
                                      const StepVariation& variation) {
  std::vector<std::string> missing = {"clocks by load and heat", "kernels chosen by shape"};
  if (mesh.world() > 1 && variation.imbalance.empty() && variation.jitter.none())
    missing.emplace_back("jitter and stragglers between ranks");
  if (mesh.size(Axis::dp) > 1 && stack.comm_sm_share == 0 &&
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
                   const Machine& machine, const Stack& stack, const StepVariation& variation) {
  const auto plan_of = [&](int micro_batches) {
    StepOptions some = options;
    some.micro_batches = micro_batches;
    return plan_step(model, mesh, some);
  };
  const auto walk_of = [&](const Plan& plan) {
    return walk(plan, machine, stack, variation.imbalance);
  };
  Rounds rounds = rounds_of(mesh, options);
  Plan plan = plan_of(rounds.walked);
  Walked walked = walk_of(plan);
  double walked_ns = walked.step_ns;
  while (rounds.walked < options.micro_batches) {
    const Plan plan_before = plan_of(rounds.walked - rounds.round);
    const Walked before = walk_of(plan_before);
    if (has_settled(plan_before, before, plan, walked)) {
      const double more = 1.0 * (options.micro_batches - rounds.walked) / rounds.round;
      walked.step_ns += more * (walked.step_ns - before.step_ns);
      walked.even_step_ns += more * (walked.even_step_ns - before.even_step_ns);
      walked.compute_ns += more * (walked.compute_ns - before.compute_ns);
      break;
    }
    // Not settled: twice as many, or all where that saves little.
    const int more = (rounds.walked + rounds.round - 1) / rounds.round * rounds.round;
    rounds.walked = 2 * more > options.micro_batches ? options.micro_batches : rounds.walked + more;
    plan = plan_of(rounds.walked);
    walked = walk_of(plan);
    walked_ns = walked.step_ns;
  }
  Prediction p{.step_s = 1e-9 * walked.step_ns,
               .busiest_compute_s = 1e-9 * walked.compute_ns,
               .memory = memory_of(plan, machine, stack),
               .simulated_micro_batches = rounds.walked,
               .ops = op_coverage(plan, machine)};
  if (!variation.imbalance.empty()) p.even_step_s = 1e-9 * walked.even_step_ns;
  if (!variation.jitter.none()) {  // as wide in all rounds as in those walked
    p.spread = spread_of_step(plan, RankClasses::folded(plan, variation.imbalance),
                              costs_of(plan, *make_roofline_cost(plan, machine, stack)),
                              variation.jitter, variation.seed);
    for (double& s : p.spread->steps_s) s *= walked.step_ns / walked_ns;
  }
  p.interval = interval_of(p.step_s, mesh, machine, stack);
  p.not_modelled = not_modelled(model, mesh, options, stack, variation);
  return p;
}

}  // namespace mb
