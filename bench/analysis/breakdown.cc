#include "bench/analysis/breakdown.h"

#include <array>
#include <map>

#include "workloads/base/error.h"

namespace mb {
namespace {

void add(StagePhase& to, const Phase& phase, double weight) {
  to.window_s += weight * static_cast<double>(phase.window_ns);
  to.compute_s += weight * static_cast<double>(phase.compute_ns);
  to.memory_s += weight * static_cast<double>(phase.memory_ns);
  to.idle_s += weight * static_cast<double>(phase.idle_ns);
  to.transfer_s.resize(phase.transfer_ns.size());
  to.wait_s.resize(phase.wait_ns.size());
  for (std::size_t axis = 0; axis < phase.transfer_ns.size(); ++axis) {
    to.transfer_s[axis] += weight * static_cast<double>(phase.transfer_ns[axis]);
    to.wait_s[axis] += weight * static_cast<double>(phase.wait_ns[axis]);
  }
}

}  // namespace

Breakdown breakdown(std::span<const StepTimes> steps) {
  Breakdown out{.steps = static_cast<int>(steps.size())};
  if (steps.empty()) return out;
  out.ranks = steps[0].world();
  const std::vector<std::string>& axes = steps[0].axes;
  out.parts = {{"compute", ""}, {"optimizer", ""}};
  for (const std::string& axis : axes) out.parts.push_back({"exposed_transfer", axis});
  for (const std::string& axis : axes) out.parts.push_back({"exposed_wait", axis});
  for (const char* name : {"memory", "idle_in_pipeline", "idle"}) out.parts.push_back({name, ""});
  for (const std::string& axis : axes) out.overlapped.push_back({axis});
  std::array<std::int64_t, kPasses> passes{};
  HiddenComm copies{"copy"};

  for (const StepTimes& step : steps) {
    out.window_ns += step.window_ns();
    for (const RankTimes& rank : step.ranks) {
      auto part = out.parts.begin();
      const auto next = [&](std::int64_t ns) { (part++)->total_ns += ns * rank.ranks; };
      next(rank.compute_ns - rank.optimizer_ns);
      next(rank.optimizer_ns);
      for (const AxisTimes& axis : rank.axes) next(axis.exposed_transfer_ns);
      for (const AxisTimes& axis : rank.axes) next(axis.exposed_wait_ns);
      next(rank.exposed_memory_ns);
      next(rank.idle_in_pipeline_ns);
      next(rank.idle_ns - rank.idle_in_pipeline_ns);
      for (std::size_t axis = 0; axis < axes.size(); ++axis) {
        out.overlapped[axis].total_ns += rank.axes[axis].overlapped_ns * rank.ranks;
        out.overlapped[axis].transfer_ns += rank.axes[axis].overlapped_transfer_ns * rank.ranks;
      }
      copies.total_ns += rank.overlapped_memory_ns * rank.ranks;
      for (int pass = 0; pass < kPasses; ++pass) passes[pass] += rank.pass_ns[pass] * rank.ranks;
    }
  }
  copies.transfer_ns = copies.total_ns;
  if (copies.total_ns > 0) out.overlapped.push_back(copies);
  for (int pass = 0; pass < kPasses; ++pass)
    if (passes[pass] > 0)
      out.passes.push_back({std::string(name_of(static_cast<Pass>(pass))), passes[pass]});
  std::int64_t sum = 0;
  for (const BreakdownPart& part : out.parts) sum += part.total_ns;
  require(sum == out.window_ns * out.ranks, "the parts of the breakdown add up to ", sum,
          " ns, not ", out.window_ns * out.ranks);
  return out;
}

std::vector<StageSummary> stages_of(std::span<const StepTimes> steps) {
  std::map<int, std::int64_t> ranks;  // by stage, over all steps
  for (const StepTimes& step : steps)
    for (const RankTimes& rank : step.ranks)
      if (rank.bubble) ranks[rank.stage] += rank.ranks;
  std::map<int, StageSummary> stages;
  for (const StepTimes& step : steps) {
    for (const RankTimes& rank : step.ranks) {
      if (!rank.bubble) continue;
      const Bubble& bubble = *rank.bubble;
      const double weight = 1e-9 * rank.ranks / static_cast<double>(ranks[rank.stage]);
      StageSummary& stage = stages[rank.stage];
      stage.stage = rank.stage;
      stage.window_s += weight * static_cast<double>(bubble.bubble_ns() + bubble.compute_ns);
      stage.compute_s += weight * static_cast<double>(bubble.compute_ns);
      stage.forward_s += weight * static_cast<double>(bubble.forward_ns);
      stage.backward_s += weight * static_cast<double>(bubble.backward_ns);
      stage.weight_grad_s += weight * static_cast<double>(bubble.weight_grad_ns);
      add(stage.warm_up, bubble.warm_up, weight);
      add(stage.steady, bubble.steady, weight);
      add(stage.cool_down, bubble.cool_down, weight);
    }
  }
  std::vector<StageSummary> out;
  for (auto& [id, stage] : stages) out.push_back(std::move(stage));
  return out;
}

}  // namespace mb
