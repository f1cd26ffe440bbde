// Times of a step in virtual time: what each instruction costs, put into the order of a walk. Exact
// and repeatable: all times are whole nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/cost/cost.h"
#include "parallel/plan/rank_classes.h"
#include "parallel/plan/walk.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// By stage and instruction.
struct StepCosts {
  // Of a compute or copy: what it takes. Of a collective, send or receive: its transfer, once all
  // have arrived.
  std::vector<std::vector<std::int64_t>> duration_ns;
  // When the host has launched it, were it never to wait; empty: launching takes no time.
  std::vector<std::vector<std::int64_t>> launched_ns;
  HostWaits host_waits = HostWaits::never;
  // From the end of an instruction to the start of the next on its stream, and of one on another
  // stream that waits for it.
  std::int64_t gap_ns = 0, handoff_ns = 0;
  // How instructions slow what runs beside them; empty: not at all.
  std::vector<std::vector<Interference>> interference;
  double comm_slowed_by = 0;
};
StepCosts costs_of(const Plan& plan, const CostModel& cost);

// What instructions of the ranks of a class take: those of its stage, or longer.
std::vector<std::int64_t> durations_of(const Plan& plan, const RankClasses& classes, int of,
                                       const StepCosts& costs);

// One lane a class. Throws Error if the plan deadlocks.
Timeline timeline_of(const Plan& plan, const RankClasses& classes, const StepCosts& costs);
// The same in an order that walk() gave for costs.host_waits, with nothing that slows others.
Timeline timeline_of(const Plan& plan, const RankClasses& classes, const StepCosts& costs,
                     const WalkOrder& order);

}  // namespace mb
