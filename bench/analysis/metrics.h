// A run's numbers by name: one sample a step, each with its unit, or the reason why there is none.
//
// Times of ranks are means over ranks. Definitions: step_times.h. MFU and HFU: model FLOPs, or
// those and the recomputed ones, over step time, devices and the device's dense peak (Chowdhery
// et al., PaLM, 2022, appendix B).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/step_times.h"

namespace mb {

struct Metric {
  std::string name, unit;  // "s", "B", "B/s", "FLOP", "FLOP/s", "1", "token", "token/s"
  std::vector<double> samples;
  std::string reason;  // why there is no sample; empty if there is one
};
Metric value(std::string name, std::string unit, double value);
Metric absent(std::string name, std::string unit, std::string reason);
const Metric* find(std::span<const Metric> metrics, std::string_view name);

// What a step computes, from the model and the plan, and what the machine could.
struct StepWork {
  double tokens = 0;
  double model_flops = 0;
  double recomputed_flops = 0;
  int devices = 1;
  std::optional<double> peak_flops_per_s;  // of one device: dense, for the dtype of the matmuls
  std::string no_peak_reason = "the peak of this device is not known";
};
// FLOPs of the plan's recompute pass, over all ranks. A recomputed layer leaves out its last
// product, of which nothing is read.
double recomputed_flops(const Plan& plan);
// FLOPs of all that the plan computes, over all ranks.
double planned_flops(const Plan& plan);

// All metrics that a timeline tells. Ratios without a denominator are absent, and so is an MFU that
// cannot be: above 1, above HFU, or above the devices' share of time in compute.
std::vector<Metric> step_metrics(std::span<const StepTimes> steps, const StepWork& work);

// Of one quantity: how ranks differ, by each rank's median over steps.
struct RankSpread {
  std::string name, unit;
  double min = 0, median = 0, max = 0;
  int min_rank = 0, max_rank = 0;
};
std::vector<RankSpread> rank_spreads(std::span<const StepTimes> steps);

}  // namespace mb
