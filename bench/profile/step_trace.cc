#include "bench/profile/step_trace.h"

#include <algorithm>
#include <cstdlib>

#include "parallel/plan/text.h"

namespace mb {
namespace {

std::string class_of(const Plan& plan, const Instruction& instruction) {
  const std::string action = action_text(plan, instruction);
  return action.substr(0, action.find(' '));
}

Span window_of(const Timeline& events, const std::vector<int>& ranks) {
  Span window{INT64_MAX, 0};
  for (const int rank : ranks) {
    for (const Span& span : events.of(rank)) {
      window.start_ns = std::min(window.start_ns, span.start_ns);
      window.end_ns = std::max(window.end_ns, span.end_ns);
    }
  }
  return window;
}

ActivityClass& named(std::vector<ActivityClass>& classes, const std::string& name) {
  const auto found = std::find_if(classes.begin(), classes.end(),
                                  [&](const ActivityClass& c) { return c.name == name; });
  return found != classes.end() ? *found : classes.emplace_back(ActivityClass{.name = name});
}

void keep_larger(std::optional<Difference>& kept, const Difference& other) {
  if (!kept || other.ns > kept->ns) kept = other;
}

}  // namespace

void add_traced_step(const Plan& plan, const Timeline& events, const std::vector<int>& ranks,
                     std::int64_t uncertainty_ns, const ActivityRecords& records,
                     StepTrace& trace) {
  const Span window = window_of(events, ranks);
  const ActivityTimeline joined =
      join(records, {window.start_ns - uncertainty_ns, window.end_ns + uncertainty_ns});
  ++trace.steps;
  trace.ranks = static_cast<int>(ranks.size());
  trace.quality.placed += joined.quality.placed;
  trace.quality.dropped += joined.quality.dropped;
  trace.quality.without_time += joined.quality.without_time;
  trace.quality.out_of_window += joined.quality.out_of_window;
  trace.quality.uncorrelated += joined.quality.uncorrelated;
  const HostTime host = host_time(records, window);
  trace.host.waits += host.waits;
  trace.host.waiting_ns += host.waiting_ns;
  trace.host.stream_waits += host.stream_waits;
  trace.host.overheads += host.overheads;
  trace.host.overhead_ns += host.overhead_ns;
  trace.host.allocations += host.allocations;
  trace.host.allocated_bytes += host.allocated_bytes;
  trace.host.without_time += host.without_time;
  trace.host.out_of_window += host.out_of_window;
  for (const auto& [external, activity] : joined.instructions) {
    const int rank = static_cast<int>(activity.rank);
    const auto id = static_cast<InstructionId>(activity.instruction);
    ActivityClass& of_class =
        named(trace.classes, class_of(plan, plan.program_of(rank).instructions[id]));
    ++of_class.instructions;
    for (const std::size_t work : activity.work)
      ++(records.work[work].kind == Activity::kernel ? of_class.kernels : of_class.copies);
    of_class.busy_ns += length_ns(activity.busy);
    const Span span = events.of(rank)[id];
    keep_larger(trace.begin, {std::abs(activity.extent.start_ns - span.start_ns), rank, id});
    keep_larger(trace.end, {std::abs(activity.extent.end_ns - span.end_ns), rank, id});
  }
  std::stable_sort(
      trace.classes.begin(), trace.classes.end(),
      [](const ActivityClass& a, const ActivityClass& b) { return a.busy_ns > b.busy_ns; });
}

}  // namespace mb
