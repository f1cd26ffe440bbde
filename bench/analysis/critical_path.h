// What a step had to wait for, end to start: the chain of instructions, over all ranks, of which
// each began as soon as the one before it had ended. Where a communication waited for its last
// participant, the chain goes on with that one's rank, so that it holds no waiting of its own.
//
// A pipeline's chain fills and drains it through other stages, so that it goes through more slots
// (a pass of a micro-batch through a chunk) than one rank has. Of what it computes and exchanges
// within stages (tp, cp, ep), the share of the slots beyond those of a rank is `wait`: the bubble.
// Times before an instruction for which nothing in the plan is the reason are the `host`'s:
// launches, wake-ups.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// "compute" with a family of operations ("matmul", "attention", "other"), "recompute", "optimizer",
// "exposed" with an axis (messages between stages are "pp"), "copy" between the memory spaces,
// "wait", "host".
struct PathPart {
  std::string kind, name;  // name is empty but for compute and exposed
  std::int64_t total_ns = 0;
  std::string text() const { return name.empty() ? kind : name; }
};

struct CriticalPath {
  std::int64_t window_ns = 0;   // sum of the steps' windows
  std::vector<PathPart> parts;  // total_ns add up to window_ns, exactly; none is 0
};

// Over the timelines of some steps. `clock_uncertainty_ns` as in step_times.h.
CriticalPath critical_path(const Plan& plan, std::span<const Timeline> steps,
                           std::int64_t clock_uncertainty_ns = 0);

}  // namespace mb
