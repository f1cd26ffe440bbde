// The result row: one strict JSON object a launch, as row.schema.json describes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/run_report.h"
#include "bench/report/fingerprint.h"
#include "bench/report/json.h"
#include "workloads/base/error.h"
#include "workloads/model/counts.h"

namespace mb {

struct RowHead {
  std::string suite = "step";
  std::string case_line;  // reruns the row
  int case_version = 1;
  std::map<std::string, Fact> params;  // every key of the case with its value in effect
  std::optional<std::string> campaign_id;
  std::string role = "single";  // or base, candidate
  std::optional<std::int64_t> pair, order, seed;
  std::map<std::string, Fact> extra_hard;        // of the fingerprint: a simulated machine's hash
  std::map<std::string, std::string> artifacts;  // by kind; paths become relative to the working
                                                 // directory
};

// All fields that every row has, with status ok and no metrics yet.
Json row_head(const RowHead& head);
// Changes the status to oom, invalid, unsupported, timeout, crash or cancelled; `detail` holds
// message, phase, needed_bytes and what else is known.
void set_status(Json& row, const std::string& status, Json detail);
// A case that there is no room for is a result.
void set_out_of_memory(Json& row, const OutOfMemory& error, const std::string& status = "oom");

// How the run of a step was made and judged.
struct RowStep {
  std::string mode;  // "threads", "sim", ...
  bool virtual_time = false;
  int warm_up_steps = 0;
  FlopConvention convention = FlopConvention::megatron;
  int devices = 1;                         // of the peak
  std::optional<double> peak_flops_per_s;  // of one device
  std::string peak_source;                 // where it is from, or why there is none
  bool verified = false;
  std::string verified_by;  // against what, or why not
  std::optional<double> verified_error;
};
// Adds every block of a training step. A number that is not finite becomes null, and "not_finite"
// lists where.
void add_step(Json& row, const StepShape& shape, const RunReport& report, const RowStep& step);

Json to_json(const Metric& metric);
Json to_json(FlopConvention convention);  // with its source
Json to_json(const Mesh& mesh);
Json to_json(const MemoryReport& memory);

}  // namespace mb
