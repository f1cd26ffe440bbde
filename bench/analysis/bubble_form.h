// The pipeline bubble of a step in closed form: equal stages, no communication time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"

namespace mb {

// Of one micro-batch on one rank, all chunks together, in any unit. Where a schedule does not split
// the backward, only the sum of its two halves counts.
struct PassTimes {
  double forward = 1, input_grad = 1, weight_grad = 1;
  double sum() const { return forward + input_grad + weight_grad; }
};

// Idle time of a rank, the same for all of them (parallel/schedule/closed_form.h), and its share:
// GPipe (Huang et al., 2019) divides by the total, Megatron-LM (Narayanan et al., SC 2021, section
// 2.2) by the ideal, which is what m micro-batches take.
struct BubbleForm {
  double idle = 0, ideal = 0;
  double window() const { return idle + ideal; }
  double of_window() const { return idle / window(); }
  double of_ideal() const { return idle / ideal; }
};
std::optional<BubbleForm> bubble_form(const Mesh& mesh, const StepOptions& options,
                                      const PassTimes& times = {});
// Its formula and public source, and why there is none.
std::string bubble_source(const StepOptions& options);
std::string no_bubble_form(const StepOptions& options);

// Idle time by stage and phase (step_times.h). 1F1B: s F + (p-1-s) B, 0, (p-1-s) F + s B, if there
// are at least p micro-batches. GPipe: (p-1) F + (p-1-s) B, 0, s B. Derived from the schedules'
// order alone; nullopt for all others.
struct BubblePhases {
  double warm_up = 0, steady = 0, cool_down = 0;
  double sum() const { return warm_up + steady + cool_down; }
};
std::optional<BubblePhases> bubble_phases(std::string_view schedule, int stages, int micro_batches,
                                          int stage, double forward, double backward);

}  // namespace mb
