// A step as parts that add up: the sum over ranks and steps, and each stage's share of the bubble.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/analysis/step_times.h"

namespace mb {

// "compute" (without the optimizer), "optimizer", "exposed_transfer" and "exposed_wait" for each
// axis, "memory", "idle_in_pipeline", "idle" (outside the pipeline window).
struct BreakdownPart {
  std::string name, axis;  // axis is empty but for communication
  std::int64_t total_ns = 0;
};
struct PassShare {
  std::string name;  // of the Pass
  std::int64_t total_ns = 0;
};
struct HiddenComm {
  std::string axis;                            // "copy": between the memory spaces
  std::int64_t total_ns = 0, transfer_ns = 0;  // the second is the part that moved data
};

struct Breakdown {
  int steps = 0, ranks = 0;
  std::int64_t window_ns = 0;          // sum of the steps' windows
  std::vector<BreakdownPart> parts;    // total_ns add up to window_ns * ranks, exactly
  std::vector<PassShare> passes;       // what compute and optimizer are made of, if there is any
  std::vector<HiddenComm> overlapped;  // communication, copies behind compute: no part of the sum
};
Breakdown breakdown(std::span<const StepTimes> steps);

// Means over pipelines and steps, in seconds.
struct StagePhase {
  double window_s = 0, compute_s = 0, memory_s = 0, idle_s = 0;
  std::vector<double> transfer_s, wait_s;  // by axis
  double bubble_s() const { return window_s - compute_s; }
};
struct StageSummary {
  int stage = 0;
  double window_s = 0, compute_s = 0;
  double forward_s = 0, backward_s = 0, weight_grad_s = 0;  // as in Bubble
  StagePhase warm_up, steady, cool_down;
  double bubble_s() const { return window_s - compute_s; }
};
// By stage; empty if there is no pipeline window.
std::vector<StageSummary> stages_of(std::span<const StepTimes> steps);

}  // namespace mb
