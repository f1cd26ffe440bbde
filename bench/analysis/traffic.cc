#include "bench/analysis/traffic.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "workloads/base/error.h"

namespace mb {
namespace {

// Sites whose all-gather in the backward brings back the input of a weight gradient; others gather
// the gradient of what leaves a divided part.
bool gathers_inputs(std::string_view site) {
  return site == "attention.qkv" || site == "mlp.up" || site == "router";
}

Site site_in_layer(const Label& label, std::string_view site, CollectiveKind kind) {
  if (site == "router.balance") return Site::router_balance;
  if (site == "experts.counts") return Site::expert_counts;
  if (label.pass == Pass::forward) return Site::layer_forward;
  if (label.pass == Pass::recompute) return Site::layer_replay;
  return kind == CollectiveKind::all_gather && gathers_inputs(site) ? Site::layer_inputs
                                                                    : Site::layer_backward;
}

Site site_of(const Plan& plan, const Instruction& i, const Collective& collective) {
  const Group group = collective.group;
  if (group == kWorld) return Site::step_sums;
  if (group.ends) return Site::tied_embedding;
  if (group.part > 0) return Site::shared_heads;
  if (i.stream == Stream::dp) {
    if (collective.kind == CollectiveKind::all_gather) return Site::parameters;
    return group == group_of(Axis::tp) ? Site::replicated_parameters : Site::gradients;
  }
  const std::string_view site = plan.site(i);
  if (i.label.layer >= 0) return site_in_layer(i.label, site, collective.kind);
  if (site.starts_with("loss")) return Site::loss;
  return site == "head" ? Site::head : Site::embedding;
}

CommCount of(const Traffic& traffic, const TrafficKey& key) {
  const auto found = traffic.find(key);
  return found == traffic.end() ? CommCount{} : found->second;
}

// Numbers of the ranks of one pipeline rank.
class Counters {
 public:
  Counters(const Plan& plan, const CountedTraffic& counted, int stage) : counted_(counted) {
    for (int rank = 0; rank < plan.mesh.world(); ++rank) {
      if (plan.mesh.coordinate(rank, Axis::pp) == stage) ranks_.push_back(rank);
    }
  }

  void name_keys(std::set<TrafficKey>& keys) const {
    if (counted_.empty()) return;
    for (int rank : ranks_) {
      for (const auto& [key, count] : counted_[rank]) keys.insert(key);
    }
  }

  void compare(TrafficRow& row) const {
    row.rank = ranks_.front();
    if (counted_.empty()) return;
    CommCount sum;
    for (int rank : ranks_) {
      const CommCount own = of(counted_[rank], row.key);
      const bool fits = row.key.kind == CollectiveKind::all_to_all_v
                            ? own.calls == row.numbers.plan.calls
                            : own == row.numbers.plan;
      if (!row.numbers.counted || (row.numbers.equal && !fits))
        row.rank = rank, row.numbers.counted = own;
      row.numbers.equal = row.numbers.equal && fits;
      sum += own;
    }
    if (row.key.kind != CollectiveKind::all_to_all_v || !row.numbers.equal) return;
    const auto ranks = static_cast<std::int64_t>(ranks_.size());
    row.numbers.counted = {sum.calls / ranks, sum.elements / ranks, sum.bytes / ranks};
    row.numbers.equal = sum.elements == ranks * row.numbers.plan.elements &&
                        sum.bytes == ranks * row.numbers.plan.bytes;
  }

 private:
  const CountedTraffic& counted_;
  std::vector<int> ranks_;
};

}  // namespace

std::optional<TrafficKey> traffic_key(const Plan& plan, const Instruction& i) {
  if (const auto* collective = std::get_if<Collective>(&i.action))
    return TrafficKey{collective->group, site_of(plan, i, *collective), collective->kind};
  if (!std::holds_alternative<Send>(i.action)) return std::nullopt;
  const bool forward = i.label.pass == Pass::forward;
  return TrafficKey{group_of(Axis::pp), forward ? Site::activations : Site::gradients,
                    std::nullopt};
}

Traffic planned_traffic(const Plan& plan, int pipeline_rank) {
  const Program& program = plan.programs[pipeline_rank];
  Traffic traffic;
  for (const Instruction& i : program.instructions) {
    if (const auto key = traffic_key(plan, i))
      traffic[*key] += {1, payload_elements(program, i), payload_bytes(program, i)};
  }
  return traffic;
}

CountedTraffic counted_traffic(const Plan& plan, const Executor& executor) {
  CountedTraffic counted;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const std::vector<CommCount> by_instruction = executor.traffic(rank);
    if (by_instruction.empty()) return {};
    Traffic& traffic = counted.emplace_back();
    const std::vector<Instruction>& instructions = plan.program_of(rank).instructions;
    for (std::size_t id = 0; id < instructions.size(); ++id) {
      if (const auto key = traffic_key(plan, instructions[id])) traffic[*key] += by_instruction[id];
    }
  }
  return counted;
}

std::vector<TrafficRow> traffic_report(const Plan& plan, const StepShape& shape,
                                       const CountedTraffic& counted) {
  std::vector<TrafficRow> report;
  for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage) {
    const Traffic form = ledger(shape, stage), planned = planned_traffic(plan, stage);
    const Counters counters(plan, counted, stage);
    std::set<TrafficKey> keys;
    for (const Traffic* traffic : {&form, &planned}) {
      for (const auto& [key, count] : *traffic) keys.insert(key);
    }
    counters.name_keys(keys);
    for (const TrafficKey& key : keys) {
      TrafficRow row{.stage = stage, .key = key, .numbers = {of(form, key), of(planned, key)}};
      row.numbers.equal = row.numbers.closed_form == row.numbers.plan;
      counters.compare(row);
      report.push_back(row);
    }
  }
  return report;
}

std::vector<AxisTraffic> by_axis(const std::vector<TrafficRow>& rows) {
  std::vector<AxisTraffic> axes;
  for (const TrafficRow& row : rows) {
    if (axes.empty() || axes.back().stage != row.stage || axes.back().group != row.key.group)
      axes.push_back({.stage = row.stage, .group = row.key.group});
    AxisTraffic& axis = axes.back();
    const std::string kind(kind_name(row.key));
    if (axis.kinds.find(kind) == std::string::npos)
      axis.kinds += cat(axis.kinds.empty() ? "" : "+", kind);
    axis.numbers.closed_form += row.numbers.closed_form;
    axis.numbers.plan += row.numbers.plan;
    if (row.numbers.counted) {
      if (!axis.numbers.counted) axis.numbers.counted.emplace();
      *axis.numbers.counted += *row.numbers.counted;
    }
    axis.numbers.equal = axis.numbers.equal && row.numbers.equal;
  }
  return axes;
}

}  // namespace mb
