#include "bench/coll/tuning.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "bench/coll/text.h"
#include "bench/report/json.h"
#include "parallel/comm/algorithms.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {
namespace {

constexpr std::string_view kSchema = "meshbench-tuning/1";

struct Time {
  double median_ns = 0, low_ns = 0, high_ns = 0;  // sums
  int rows = 0;
};
using Times = std::map<Algorithm, Time>;

Algorithm fastest(Times times) {
  for (auto& [algorithm, time] : times)
    time = {time.median_ns / time.rows, time.low_ns / time.rows, time.high_ns / time.rows, 1};
  const auto best = std::min_element(times.begin(), times.end(), [](const auto& a, const auto& b) {
    return a.second.median_ns < b.second.median_ns;
  });
  return std::find_if(
             times.begin(), times.end(),
             [&](const auto& entry) { return entry.second.low_ns <= best->second.high_ns; })
      ->first;
}

bool is_a_choice(const TimedRow& row) {
  if (row.algorithm == Algorithm::own || row.algorithm == Algorithm::native) return true;
  const auto kind = kind_of(row.operation);
  return kind && has_algorithm(*kind, row.algorithm);
}

Json to_json(const TunedOperation& tuned) {
  Json steps = Json::array();
  for (const TunedStep& step : tuned.steps)
    steps.push_back({{"from_bytes", step.from_bytes}, {"algorithm", name_of(step.algorithm)}});
  return {{"operation", name_of(tuned.operation)}, {"members", tuned.members}, {"steps", steps}};
}

Algorithm algorithm_named(const std::string& name, std::string_view origin) {
  std::vector<Algorithm> all;
  for (int i = 0; i < kAlgorithms; ++i) all.push_back(static_cast<Algorithm>(i));
  return find_named(all, name, cat(origin, ": algorithm '", name, "'"),
                    [](Algorithm known) { return name_of(known); });
}

TunedOperation operation_from(const Json& json, std::string_view origin) {
  const std::string name = json.at("operation");
  TunedOperation tuned{.operation = operation_named(name, cat(origin, ": operation '", name, "'")),
                       .members = json.at("members")};
  const auto subject = [&] { return cat(origin, ": ", name, " of ", tuned.members, " members"); };
  require(tuned.members >= 1, subject(), "; give 1 or more");
  for (const Json& step : json.at("steps")) {
    const std::int64_t from = step.at("from_bytes");
    require(from >= 0 && (tuned.steps.empty() || from > tuned.steps.back().from_bytes), subject(),
            ": from_bytes ", from, " has to be above that of the step before");
    tuned.steps.push_back({from, algorithm_named(step.at("algorithm"), origin)});
  }
  require(!tuned.steps.empty(), subject(), " has no steps; give one from 0 bytes");
  return tuned;
}

}  // namespace

std::vector<TimedRow> timed_rows(const std::vector<MeasuredPoint>& all) {
  std::vector<TimedRow> rows;
  for (const MeasuredPoint& m : all) {
    const Point& point = m.result.point;
    for (std::size_t g = 0; g < m.summary.groups.size(); ++g) {
      const Distribution& d = m.summary.groups[g].completion;
      const Range range = d.interval.value_or(Range{d.min, d.max});
      rows.push_back({point.operation, m.result.groups[g].call.members, point.bytes,
                      point.algorithm, d.p50, range.low, range.high});
    }
  }
  return rows;
}

std::vector<TunedOperation> tune(const std::vector<TimedRow>& rows) {
  std::map<std::pair<Operation, int>, std::map<std::int64_t, Times>> measured;
  for (const TimedRow& row : rows) {
    if (!is_a_choice(row)) continue;
    Time& time = measured[{row.operation, row.members}][row.bytes][row.algorithm];
    time.median_ns += row.median_ns;
    time.low_ns += row.low_ns;
    time.high_ns += row.high_ns;
    ++time.rows;
  }
  std::vector<TunedOperation> table;
  for (const auto& [of, sizes] : measured) {
    table.push_back({.operation = of.first, .members = of.second});
    std::vector<TunedStep>& steps = table.back().steps;
    for (const auto& [bytes, times] : sizes) {
      const Algorithm algorithm = fastest(times);
      if (steps.empty() || steps.back().algorithm != algorithm) steps.push_back({bytes, algorithm});
    }
  }
  return table;
}

Algorithm algorithm_for(const Tuning& tuning, Operation operation, int members,
                        std::int64_t bytes) {
  const TunedOperation* nearest = nullptr;
  const auto distance = [&](const TunedOperation& tuned) {
    return std::pair(std::abs(tuned.members - members), tuned.members);
  };
  for (const TunedOperation& tuned : tuning.operations) {
    if (tuned.operation != operation) continue;
    if (!nearest || distance(tuned) < distance(*nearest)) nearest = &tuned;
  }
  require(nearest != nullptr, "algorithm=@", tuning.origin, " has no ", name_of(operation),
          "; measure it with --tune, or leave it out of op=");
  const auto above =
      std::upper_bound(nearest->steps.begin(), nearest->steps.end(), bytes,
                       [](std::int64_t size, const auto& step) { return size < step.from_bytes; });
  return above == nearest->steps.begin() ? above->algorithm : std::prev(above)->algorithm;
}

std::string to_json(const Tuning& tuning) {
  Json operations = Json::array();
  for (const TunedOperation& tuned : tuning.operations) operations.push_back(to_json(tuned));
  const Json json = {{"schema", kSchema},         {"case", tuning.case_line},
                     {"mode", tuning.mode},       {"machine", tuning.machine},
                     {"library", tuning.library}, {"operations", operations}};
  return json.dump(2) + '\n';
}

Tuning tuning_from_json(std::string_view text, std::string_view origin) {
  Tuning tuning{.origin = std::string(origin)};
  try {
    const Json json = Json::parse(text);
    const Json schema = json.is_object() ? json.value("schema", Json(nullptr)) : Json(nullptr);
    require(schema == kSchema, origin, ": its schema is ", schema.dump(), ", not \"", kSchema,
            "\"; give a file that 'meshbench coll --tune' has written");
    tuning.case_line = json.at("case");
    tuning.mode = json.at("mode");
    tuning.machine = json.at("machine");
    tuning.library = json.at("library");
    for (const Json& operation : json.at("operations"))
      tuning.operations.push_back(operation_from(operation, origin));
  } catch (const Json::exception& error) {
    throw Error(cat(origin, ": ", error.what()));
  }
  return tuning;
}

}  // namespace mb
