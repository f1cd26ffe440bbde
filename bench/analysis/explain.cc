#include "bench/analysis/explain.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::vector<ExplainedPart> path_of(const ModelConfig& model, const Mesh& mesh,
                                   const StepOptions& options, const Machine& machine,
                                   const Stack& stack) {
  const Plan plan = plan_step(model, mesh, options);
  const auto cost = make_roofline_cost(plan, machine, stack);
  const Timeline timeline = simulate(plan, *cost);
  std::vector<ExplainedPart> parts;
  for (const PathPart& part : critical_path(plan, {&timeline, 1}).parts)
    parts.push_back({part.kind, part.name, 1e-9 * static_cast<double>(part.total_ns)});
  return parts;
}

// Kinds as critical_path tells them; axes in the order of CommAxes, so that parts of several steps
// fall into one order.
auto turn(const std::string& kind, const std::string& name) {
  constexpr std::array<std::string_view, 7> kKinds = {
      "compute", "recompute", "optimizer", "exposed", "copy", "wait", "host"};
  constexpr std::array<std::string_view, 11> kNames = {
      "matmul", "attention", "other", "tp", "cp", "ep", "pp", "dp", "rdp", "embedding", "world"};
  return std::tuple(std::find(kKinds.begin(), kKinds.end(), kind) - kKinds.begin(),
                    std::find(kNames.begin(), kNames.end(), name) - kNames.begin(), name);
}

double& part_of(std::vector<ExplainedPart>& parts, const ExplainedPart& like) {
  for (ExplainedPart& part : parts) {
    if (part.kind == like.kind && part.name == like.name) return part.seconds;
  }
  return parts.emplace_back(ExplainedPart{like.kind, like.name, 0}).seconds;
}

}  // namespace

Explained explain(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                  const Machine& machine, const Stack& stack) {
  Explained out{.prediction = predict(model, mesh, options, machine, stack)};
  const int walked = out.prediction.simulated_micro_batches;
  StepOptions some = options;
  some.micro_batches = walked;
  out.parts = path_of(model, mesh, some, machine, stack);
  if (walked < options.micro_batches) {
    const int round = rounds_of(mesh, options).round;
    some.micro_batches -= round;
    const double more = 1.0 * (options.micro_batches - walked) / round;
    const std::vector<ExplainedPart> whole = out.parts;
    for (const ExplainedPart& part : whole) part_of(out.parts, part) += more * part.seconds;
    for (const ExplainedPart& part : path_of(model, mesh, some, machine, stack))
      part_of(out.parts, part) -= more * part.seconds;
  }
  std::stable_sort(out.parts.begin(), out.parts.end(),
                   [](const ExplainedPart& a, const ExplainedPart& b) {
                     return turn(a.kind, a.name) < turn(b.kind, b.name);
                   });
  return out;
}

std::vector<ComparedPart> compare_parts(const std::vector<const Explained*>& steps) {
  std::vector<ComparedPart> all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const ExplainedPart& part : steps[i]->parts) {
      auto found = std::find_if(all.begin(), all.end(), [&](const ComparedPart& p) {
        return p.kind == part.kind && p.name == part.name;
      });
      if (found == all.end())
        found =
            all.insert(all.end(), {part.kind, part.name, std::vector<double>(steps.size(), 0.0)});
      found->seconds[i] = part.seconds;
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const ComparedPart& a, const ComparedPart& b) {
    return turn(a.kind, a.name) < turn(b.kind, b.name);
  });
  return all;
}

}  // namespace mb
