// Steps of a case that CUPTI watches.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/case.h"
#include "bench/profile/step_trace.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/processes.h"

namespace mb {

struct TracedSteps {
  std::optional<StepTrace> trace;  // of the ranks of this process
  std::string reason;              // why there is none
  std::vector<double> step_s;      // of all ranks
};

// Takes c.steps + 1 more steps and traces them; the first, in which CUPTI makes what it needs,
// does not count. All processes make the call. `go_on` is asked after each step. Throws Error with
// profile=cupti where it cannot, else says why.
TracedSteps trace_steps(const Case& c, const Plan& plan, const std::vector<int>& ranks,
                        Executor& executor, Processes& processes,
                        const std::function<bool()>& go_on);

}  // namespace mb
