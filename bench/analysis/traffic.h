// What each rank sends and reduces in a step: closed form, plan and communicators side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/ledger.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/plan.h"

namespace mb {

// What a collective or send of the plan is for; nullopt for anything else, receives too.
std::optional<TrafficKey> traffic_key(const Plan& plan, const Instruction& instruction);

Traffic planned_traffic(const Plan& plan, int pipeline_rank);

// By rank, what Executor::traffic says; empty in virtual time.
using CountedTraffic = std::vector<Traffic>;
CountedTraffic counted_traffic(const Plan& plan, const Executor& executor);

// `counted` is absent in virtual time.
struct TrafficNumbers {
  CommCount closed_form, plan;
  std::optional<CommCount> counted;
  bool equal = true;  // all say the same, on every rank of the pipeline rank
};

// One site on the ranks of one pipeline rank.
struct TrafficRow {
  int stage = 0, rank = 0;  // the rank that counted: one that disagrees, if any does
  TrafficKey key;
  TrafficNumbers numbers;
};

// By pipeline rank and key, every key that any of the three names.
std::vector<TrafficRow> traffic_report(const Plan& plan, const StepShape& shape,
                                       const CountedTraffic& counted);

// Rows that follow each other with the same stage and group as one.
struct AxisTraffic {
  int stage = 0;
  Group group;
  std::string kinds;  // joined by "+"
  TrafficNumbers numbers;
};
std::vector<AxisTraffic> by_axis(const std::vector<TrafficRow>& rows);

}  // namespace mb
