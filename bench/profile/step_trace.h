// Steps that a device tracer watched: what instructions of a kind had the devices do, and how far
// the tracer's times are from those of device events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/profile/records.h"
#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// Instructions that do the same, "matmul" or "all_reduce", over the ranks and steps traced.
struct ActivityClass {
  std::string name;
  std::int64_t instructions = 0;         // of which there are records
  std::int64_t kernels = 0, copies = 0;  // memsets count as copies
  std::int64_t busy_ns = 0;              // of each instruction, the union of its work
};

// Between the begins, or the ends, of an instruction's work and of its device events.
struct Difference {
  std::int64_t ns = 0;
  int rank = 0;
  InstructionId instruction = 0;
};

struct StepTrace {
  int steps = 0, ranks = 0;
  TraceQuality quality;                // sums over steps
  HostTime host;                       // likewise
  std::vector<ActivityClass> classes;  // the busiest first
  // The largest over all instructions; absent where no record was placed. An instruction's events
  // begin when its stream comes to it, its work when that has been launched.
  std::optional<Difference> begin, end;
};

// Adds the records of one step of `ranks`, those of this process, whose device events say `events`
// to within `uncertainty_ns`; what lies farther outside of all of them is no part of the step.
void add_traced_step(const Plan& plan, const Timeline& events, const std::vector<int>& ranks,
                     std::int64_t uncertainty_ns, const ActivityRecords& records, StepTrace& trace);

}  // namespace mb
