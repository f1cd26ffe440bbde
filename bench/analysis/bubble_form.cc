#include "bench/analysis/bubble_form.h"

#include "parallel/schedule/closed_form.h"
#include "parallel/strategy/layout.h"
#include "workloads/base/error.h"

namespace mb {

std::optional<BubbleForm> bubble_form(const Mesh& mesh, const StepOptions& options,
                                      const PassTimes& times) {
  const auto idle = idle_closed_form(options.schedule, pipeline_shape(mesh, options), times.forward,
                                     times.input_grad, times.weight_grad);
  if (!idle) return std::nullopt;
  return BubbleForm{*idle, options.micro_batches * times.sum()};
}

std::string bubble_source(const StepOptions& options) {
  const auto form = idle_form(options.schedule);
  return form ? cat("idle of a rank ", form->formula, ": ", form->source) : no_bubble_form(options);
}

std::string no_bubble_form(const StepOptions& options) {
  return idle_form(options.schedule)
             ? cat("the closed form of schedule ", options.schedule, " is for F=I=W alone")
             : cat("no closed form for schedule ", options.schedule);
}

std::optional<BubblePhases> bubble_phases(std::string_view schedule, int stages, int micro_batches,
                                          int stage, double forward, double backward) {
  const double before = stage, behind = stages - 1 - stage;
  if (schedule == "gpipe")
    return BubblePhases{(stages - 1) * forward + behind * backward, 0, before * backward};
  if (schedule == "1f1b" && micro_batches >= stages)
    return BubblePhases{before * forward + behind * backward, 0,
                        behind * forward + before * backward};
  return std::nullopt;
}

}  // namespace mb
