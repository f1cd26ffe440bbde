// What a fit found, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/fit/collective_fit.h"
#include "bench/fit/operation_fit.h"
#include "bench/fit/rows.h"
#include "bench/fit/step_fit.h"
#include "bench/fit/width.h"
#include "bench/report/json.h"

namespace mb {

struct FitReport {
  CollectivesFit collectives;
  OperationsFit operations;
  int measured_comm = 0;  // collectives and messages
  StepsFit steps;
  std::vector<TraceFacts> traces;
  std::string host_source;  // of stack.host_us, where it is from traces
  std::vector<std::string> notes;
  std::string width_case;
  std::vector<WidthPart> width;
  bool found_for_machine() const {
    return !collectives.curves.empty() || collectives.link.latency_s || collectives.nic ||
           operations.operations > 0 || measured_comm > 0;
  }
  bool found_for_stack() const { return steps.fit.has_value() || !host_source.empty(); }
};

std::string to_text(const FitReport& report, const Machine& machine, const Stack& stack);
Json to_json(const FitReport& report, const Machine& machine, const Stack& stack);

}  // namespace mb
