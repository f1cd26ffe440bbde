// Where a step's time went, on each rank and in the pipeline, in integer nanoseconds.
//
// Compute is every Compute instruction, communication every collective, send and receive (waiting
// included), memory every Copy. Times are lengths of unions: what runs twice at once counts once.
//
// Each instant of the step window belongs to exactly one part, by the priority compute > transfer
// > wait > memory > idle, and within transfer and wait by the order of CommAxes. So the parts add
// up to the window; what holds compute > communication > memory is the convention of HTA and
// TraceLens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/matching.h"
#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// Communication over one axis. exposed = comm - overlapped, but for what other axes expose at the
// same instants; over all axes, exposed_transfer + exposed_wait is all that is exposed.
struct AxisTimes {
  std::int64_t comm_ns = 0, overlapped_ns = 0, exposed_transfer_ns = 0, exposed_wait_ns = 0;
  // The part of overlapped that moved data: a receive that is posted ahead overlaps by waiting.
  std::int64_t overlapped_transfer_ns = 0;
  std::int64_t exposed_ns() const { return exposed_transfer_ns + exposed_wait_ns; }
};

// A part of the pipeline window on one rank; the parts below add up to window_ns.
struct Phase {
  std::int64_t window_ns = 0, compute_ns = 0;
  std::vector<std::int64_t> transfer_ns, wait_ns;  // exposed, by axis
  std::int64_t memory_ns = 0, idle_ns = 0;
  std::int64_t bubble_ns() const { return window_ns - compute_ns; }
};

// One rank in its pipeline. The window runs from the earliest forward start to the latest backward
// end over all stages. The rank's own work bounds the phases: warm-up until its first backward
// starts, cool-down from the end of its last forward, steady between them (empty in GPipe).
struct Bubble {
  Span window;
  std::int64_t compute_ns = 0;  // within the window
  // Summed over micro-batches. Backward has both its halves and recomputation in it.
  std::int64_t forward_ns = 0, backward_ns = 0, weight_grad_ns = 0;
  Phase warm_up, steady, cool_down;
  std::int64_t bubble_ns() const { return window.end_ns - window.start_ns - compute_ns; }
};

// A rank, standing for `ranks` that share its lane.
struct RankTimes {
  int rank = 0, ranks = 1, stage = 0;
  std::int64_t compute_ns = 0;
  std::array<std::int64_t, kPasses> pass_ns{};  // compute by Pass
  std::int64_t optimizer_ns = 0;                // that of the optimizer
  std::int64_t comm_ns = 0, overlapped_ns = 0, exposed_comm_ns = 0;
  std::int64_t memory_ns = 0, overlapped_memory_ns = 0, exposed_memory_ns = 0;
  std::int64_t idle_ns = 0, idle_in_pipeline_ns = 0;  // the second is part of the first
  std::int64_t busy_ns = 0;                           // compute, communication or memory
  std::int64_t busy_effective_ns = 0;                 // the same without waiting for other ranks
  std::vector<AxisTimes> axes;
  std::optional<Bubble> bubble;  // if the pipeline has forwards and backwards
};

struct StepTimes {
  Span window;                     // earliest start to latest end over all ranks
  std::vector<std::string> axes;   // names, in the order of RankTimes::axes
  std::vector<RankTimes> ranks;    // by lane
  std::int64_t invalid_spans = 0;  // end before start: left out, and counted here
  int world() const;
  std::int64_t window_ns() const { return window.end_ns - window.start_ns; }
};

// `clock_uncertainty_ns`: a rank that ended before the last arrival by more than this did not wait
// for it; 0 where all ranks share a clock. Throws Error if timeline and plan do not fit together.
StepTimes step_times(const Plan& plan, const Timeline& timeline,
                     std::int64_t clock_uncertainty_ns = 0);

}  // namespace mb
