#include "bench/cli/link_rates.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "bench/cli/coll_case.h"
#include "bench/cli/ranks.h"
#include "bench/coll/runner.h"
#include "workloads/base/error.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {
namespace {

// Messages between stages go one way, as a shift does.
Operation operation_of(int kind) {
  if (kind == kSendRecv) return Operation::shift;
  return operation_named(name_of(static_cast<CollectiveKind>(kind)), "a Plan");
}

std::set<LinkModel::Use> uses_of(const Plan& plan) {
  std::set<LinkModel::Use> uses;
  for (const Program& program : plan.programs) {
    for (const Instruction& i : program.instructions) {
      if (const auto* collective = std::get_if<Collective>(&i.action)) {
        if (plan.mesh.group_size(collective->group) > 1)
          uses.emplace(static_cast<int>(collective->kind), collective->group);
      } else if (std::holds_alternative<Send>(i.action)) {
        uses.emplace(kSendRecv, group_of(Axis::pp));
      }
    }
  }
  return uses;
}

std::map<LinkModel::Use, double> measure_uses(const Case& c, const std::set<LinkModel::Use>& uses) {
  if (uses.empty()) return {};
  CollCase large =
      parse_coll_case(large_collective(c.mesh.to_text(), std::string(name_of(c.mode))));
  large.mesh = c.mesh;
  large.timeout_s = c.timeout_s;
  large.check = false;  // the run's own numbers are
  std::vector<Point> points;
  for (const auto& [kind, group] : uses)
    points.push_back(
        {.operation = operation_of(kind), .group = group, .bytes = large.sizes.front()});
  const DeviceMaker make_device = devices_of(c.mode, c.mesh);
  CaseWorld world(c.mode, c.mesh, {}, c.timeout_s);
  CollRunner runner(
      *world, large, points, [] { return false; }, make_device);
  std::map<LinkModel::Use, double> measured;
  auto use = uses.begin();
  for (const Point& point : points) {
    const std::optional<PointResult> result = runner.measure(point);
    if (result && !why_no_speed()) {
      const PointSummary summary =
          summarize(large, *result, {.mode = std::string(name_of(c.mode))});
      if (const auto busbw = slowest(summary).busbw) measured[*use] = *busbw;
    }
    ++use;
  }
  return measured;
}

}  // namespace

std::optional<Machine> datasheet_of(std::string gpu) {
  std::transform(gpu.begin(), gpu.end(), gpu.begin(), [](unsigned char c) {
    return c == ' ' ? '-' : static_cast<char>(std::tolower(c));
  });
  std::optional<Machine> found;
  std::size_t longest = 0;  // "gh200" has "h200" in it, "h100-pcie" "h100"
  for (const Machine& machine : machines()) {
    const std::string model = machine.name.substr(0, machine.name.find('x'));
    if (model == "cpu" || gpu.find(model) == std::string::npos || model.size() <= longest) continue;
    found = machine, longest = model.size();
  }
  return found;
}

std::vector<std::string> large_collective(const std::string& mesh, const std::string& mode) {
  std::vector<std::string> words = {cat("mesh=", mesh), cat("mode=", mode), "in_place=out"};
  if (why_no_speed()) {
    words.insert(words.end(), {"size=64K", "time_cap=1ms", "iterations=4,4", "warm_up=0"});
  } else {
    words.insert(words.end(), {"size=256M", "time_cap=500ms"});
  }
  return words;
}

LinkModel gpu_links(const Case& c, const Plan& plan) {
  if (!on_nccl(c.mode)) {
    const std::string reason =
        "ranks communicate through memory of the host, whose rate a run does not measure";
    return {.algorithm = on_mpi(c.mode) ? Algorithm::direct : Algorithm::own,
            .reason = reason,
            .no_measured = reason};
  }
  LinkModel links{.algorithm = std::nullopt};  // the library's choice
  const std::string gpu = gpu_name();
  if (const std::optional<Machine> machine = datasheet_of(gpu)) {
    links.links = LinkShape{.intra = machine->intra, .inter = machine->inter};
    links.source = cat("the datasheet of ", machine->name);
  } else {
    links.reason = cat("no datasheet of ", gpu, " is known");
  }
  if (why_no_speed()) links.no_measured = why_no_speed();
  try {
    links.measured = measure_uses(c, uses_of(plan));
  } catch (const Error& error) {
    links.no_measured = error.what();
  }
  return links;
}

}  // namespace mb
