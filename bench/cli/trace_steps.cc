#include "bench/cli/trace_steps.h"

#include "bench/cli/exit.h"
#include "bench/profile/cupti.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Why this process is not traced; empty if it is.
std::string started(const Case& c) {
  try {
    start_cupti();
    return "";
  } catch (const Error& error) {
    if (c.profile == Profile::cupti) throw;
    return error.what();
  }
}

}  // namespace

TracedSteps trace_steps(const Case& c, const Plan& plan, const std::vector<int>& ranks,
                        Executor& executor, Processes& processes,
                        const std::function<bool()>& go_on) {
  TracedSteps traced;
  if (!on_cuda(c.mode)) traced.reason = cat("mode=", name_of(c.mode), " has no GPUs");
  if (on_cuda(c.mode) && c.profile == Profile::off) traced.reason = "profile=off";
  if (c.graph) traced.reason = "graph=on: CUPTI leads all of a graph back to its one launch";
  if (!traced.reason.empty()) return traced;
  StepTrace trace;
  for (int step = 0; step <= c.steps; ++step) {
    traced.reason = started(c);
    if (processes.any(!traced.reason.empty())) {
      if (traced.reason.empty()) {
        stop_cupti();
        traced.reason = "another process cannot be traced";
      }
      return traced;
    }
    const StepResult done = executor.step();
    const ActivityRecords records = stop_cupti();
    if (processes.any(!go_on()))
      throw Exit(kExitInterrupted, cat("interrupted while steps were traced; run again with the "
                                       "same case: ",
                                       to_text(c)));
    if (step == 0) continue;
    add_traced_step(plan, done.timeline, ranks, done.clock_uncertainty_ns, records, trace);
    traced.step_s.push_back(1e-9 * static_cast<double>(length_ns(done.timeline.window())));
  }
  traced.trace = std::move(trace);
  return traced;
}

}  // namespace mb
