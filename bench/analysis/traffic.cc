#include "bench/analysis/traffic.h"

#include <algorithm>
#include <map>

#include "bench/analysis/matching.h"

namespace mb {
namespace {

bool agree(const TrafficCount& a, const TrafficCount& b) {
  return (!a.calls || !b.calls || *a.calls == *b.calls) && a.elements == b.elements &&
         a.bytes == b.bytes;
}

// An absent count beside a present one means that the axis carried nothing there.
bool agree(const std::optional<TrafficCount>& a, const std::optional<TrafficCount>& b) {
  return agree(a.value_or(TrafficCount{0, 0, 0}), b.value_or(TrafficCount{0, 0, 0}));
}

std::optional<TrafficCount> count_on(const std::vector<GroupTraffic>& traffic,
                                     const std::string& axis) {
  std::optional<TrafficCount> sum;
  for (const GroupTraffic& t : traffic) {
    if ((t.point_to_point ? "pp" : name_of(t.group)) != axis) continue;
    if (!sum) sum = TrafficCount{0, 0, 0};
    *sum->calls += t.count.calls;
    sum->elements += t.count.elements;
    sum->bytes += t.count.bytes;
  }
  return sum;
}

TrafficRow& row_of(std::vector<TrafficRow>& rows, const std::string& axis, int stage) {
  for (TrafficRow& row : rows)
    if (row.axis == axis) return row;
  return rows.emplace_back(TrafficRow{.stage = stage, .axis = axis});
}

// Compares every rank of the stage; keeps the first that disagrees.
void add_counted(const Plan& plan, const CountedTraffic& counted, std::vector<TrafficRow>& rows,
                 int stage) {
  for (int rank = 0; rank < static_cast<int>(counted.size()); ++rank) {
    if (plan.mesh.coordinate(rank, Axis::pp) != stage) continue;
    for (const GroupTraffic& t : counted[rank])
      if (t.count.calls > 0) row_of(rows, t.point_to_point ? "pp" : name_of(t.group), stage);
    for (TrafficRow& row : rows) {
      const auto count = count_on(counted[rank], row.axis);
      const bool fits = agree(count, row.plan);
      if (!row.counted || (row.equal && !fits))
        row.rank = rank, row.counted = count.value_or(TrafficCount{0, 0, 0});
      row.equal = row.equal && fits;
    }
  }
}

}  // namespace

CountedTraffic counted_traffic(const Executor& executor, int world) {
  CountedTraffic counted;
  for (int rank = 0; rank < world; ++rank) counted.push_back(executor.traffic(rank));
  const bool nothing =
      std::all_of(counted.begin(), counted.end(), [](const auto& t) { return t.empty(); });
  return nothing ? CountedTraffic{} : counted;
}

std::vector<TrafficRow> planned_traffic(const Plan& plan, int stage) {
  const Program& program = plan.programs[stage];
  std::vector<TrafficRow> rows;
  for (const Instruction& i : program.instructions) {
    const auto* collective = std::get_if<Collective>(&i.action);
    if (!collective && !std::holds_alternative<Send>(i.action)) continue;
    TrafficRow& row = row_of(rows, axis_name(i), stage);
    if (!row.plan) row.plan = TrafficCount{0, 0, 0};
    ++*row.plan->calls;
    row.plan->elements += payload_elements(program, i);
    row.plan->bytes += payload_bytes(program, i);
    const std::string kind = collective ? std::string(name_of(collective->kind)) : "send";
    if (row.kind.find(kind) == std::string::npos) row.kind += (row.kind.empty() ? "" : "+") + kind;
  }
  return rows;
}

std::vector<TrafficRow> traffic_report(const Plan& plan, const StepShape& shape,
                                       const CountedTraffic& counted) {
  std::vector<TrafficRow> report;
  for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage) {
    std::vector<TrafficRow> rows = planned_traffic(plan, stage);
    for (const Ledger& line : ledger(shape, stage)) {
      TrafficRow& row = row_of(rows, line.axis, stage);
      row.closed_form = TrafficCount{line.calls, line.elements, line.bytes};
      if (row.kind.empty()) row.kind = line.kind;
    }
    Coordinates first{};
    first[static_cast<int>(Axis::pp)] = stage;
    for (TrafficRow& row : rows) {
      row.rank = plan.mesh.rank_of(first);
      row.equal = agree(row.closed_form, row.plan);
    }
    add_counted(plan, counted, rows, stage);
    report.insert(report.end(), rows.begin(), rows.end());
  }
  return report;
}

}  // namespace mb
