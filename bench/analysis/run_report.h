// All that is told of a run: every analysis of this folder, from the run's raw results.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/analysis/breakdown.h"
#include "bench/analysis/bubble_form.h"
#include "bench/analysis/collectives.h"
#include "bench/analysis/critical_path.h"
#include "bench/analysis/memory.h"
#include "bench/analysis/metrics.h"
#include "bench/analysis/step_shape.h"
#include "bench/analysis/traffic.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

struct RunResults {
  std::vector<Timeline> timelines;  // of the recorded steps
  std::vector<Training> training;   // of the same steps; empty in virtual time
  MeasuredMemory memory;
  CountedTraffic traffic;
  LinkModel links;
  std::int64_t clock_uncertainty_ns = 0;  // between any two ranks of a timeline
  std::string no_speed;  // why times mean nothing and are left out; empty where they are told
};

// A stage as measured, and what the schedule alone asks for; times of the form in seconds, from the
// mean forward and backward over stages.
struct StageReport {
  StageSummary measured;
  std::optional<BubblePhases> closed_form;
};

struct RunReport {
  std::string no_speed;           // of the results; then nothing that follows from times is there
  std::vector<std::string> axes;  // of the breakdown and of StagePhase
  std::vector<Metric> metrics;    // with memory, loss and gradient norm
  std::vector<RankSpread> ranks;
  Breakdown breakdown;
  CriticalPath critical_path;
  std::vector<StageReport> stages;
  // Of one micro-batch on a stage, mean over stages; weight gradients by themselves, where the
  // schedule has slots for them, are part of backward.
  double forward_s = 0, backward_s = 0, weight_grad_s = 0;
  std::optional<BubbleForm> bubble;  // closed form for these times
  std::vector<CollectiveProfile> collectives;
  std::string links_source, no_measured;  // as LinkModel has them
  std::vector<LinkClassFit> link_fits;
  MemoryReport memory;
  std::vector<TrafficRow> traffic;
  std::int64_t invalid_spans = 0;
};

RunReport report_run(const Plan& plan, const StepShape& shape, const RunResults& results,
                     const StepWork& work);

}  // namespace mb
