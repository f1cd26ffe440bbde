// What each rank sends and reduces in a step: closed form, plan and communicator side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/theory.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/plan.h"

namespace mb {

struct TrafficCount {
  std::optional<std::int64_t> calls;  // nullopt where a closed form does not say
  std::int64_t elements = 0, bytes = 0;
};

// One axis on the ranks of one stage.
struct TrafficRow {
  int stage = 0, rank = 0;  // the rank that counted: one that disagrees, if any does
  std::string axis, kind;   // kind is "send" over the pipeline; several are joined by "+"
  std::optional<TrafficCount> closed_form, plan, counted;
  bool equal = true;  // every number that is there says the same, on every rank of the stage
};

// By rank, what Executor::traffic says; empty in virtual time.
using CountedTraffic = std::vector<std::vector<GroupTraffic>>;
CountedTraffic counted_traffic(const Executor& executor, int world);

// Traffic in a plan's instructions. A receive is not traffic of the receiver.
std::vector<TrafficRow> planned_traffic(const Plan& plan, int stage);

// By stage and axis, one row for every axis that any of the three names.
std::vector<TrafficRow> traffic_report(const Plan& plan, const StepShape& shape,
                                       const CountedTraffic& counted);

}  // namespace mb
