#include "bench/analysis/run_report.h"

#include "workloads/base/error.h"

namespace mb {
namespace {

// Measured where an allocator counted, else as planned.
void add_memory(const MemoryReport& memory, std::vector<Metric>& metrics) {
  const auto add = [&](const std::string& name, const MemoryRow& row) {
    metrics.push_back(
        value(name, "B", static_cast<double>(row.measured_bytes.value_or(row.plan_bytes))));
  };
  add("peak_bytes", memory.total);
  add("peak_host_bytes", memory.host);
  for (const MemoryRow& row : memory.classes) add(cat("peak_", row.name, "_bytes"), row);
}

void add_training(const ModelConfig& model, std::span<const Training> training,
                  std::vector<Metric>& metrics) {
  const auto add = [&](const char* name, double (*of)(const Training&)) -> Metric& {
    Metric metric{.name = name, .unit = "1"};
    if (training.empty()) metric.reason = "virtual time moves no data";
    for (const Training& step : training) metric.samples.push_back(of(step));
    return metrics.emplace_back(std::move(metric));
  };
  add("loss", [](const Training& t) { return t.loss; });
  add("gradient_norm", [](const Training& t) { return t.gradient_norm; });
  add("loss_scale", [](const Training& t) { return t.loss_scale; });
  add("skipped", [](const Training& t) { return t.skipped ? 1.0 : 0.0; });
  Metric& balance = add("balance_loss", [](const Training& t) { return t.balance_loss; });
  if (model.experts > 1) return;
  balance.samples.clear();
  balance.reason = "the model has no router";
}

void add_stages(const StepShape& shape, std::span<const StepTimes> steps, RunReport& report) {
  std::vector<StageSummary> stages = stages_of(steps);
  for (const StageSummary& stage : stages) {
    const double share = 1.0 / (static_cast<double>(stages.size()) * shape.options.micro_batches);
    report.forward_s += share * stage.forward_s;
    report.backward_s += share * stage.backward_s;
    report.weight_grad_s += share * stage.weight_grad_s;
  }
  for (StageSummary& stage : stages) {
    const auto form =
        bubble_phases(shape.options.schedule, shape.stages(), shape.options.micro_batches,
                      stage.stage, report.forward_s, report.backward_s);
    report.stages.push_back({std::move(stage), form});
  }
}

// All that follows from times; counts stay.
void leave_out_times(RunReport& report) {
  for (Metric& metric : report.metrics) {
    const bool counted = metric.unit == "token" || metric.unit == "FLOP";
    if (!counted) metric = absent(metric.name, metric.unit, report.no_speed);
  }
  report.ranks.clear();
  report.breakdown = {.steps = report.breakdown.steps, .ranks = report.breakdown.ranks};
  report.critical_path = {};
  report.stages.clear();
  report.forward_s = report.backward_s = report.weight_grad_s = 0;
  report.bubble.reset();
  for (CollectiveProfile& profile : report.collectives) {
    profile.algbw_bytes_per_s = profile.busbw_bytes_per_s = std::nullopt;
    profile.no_rate = report.no_speed;
  }
  report.link_fits.clear();
}

}  // namespace

RunReport report_run(const Plan& plan, const StepShape& shape, const RunResults& results,
                     const StepWork& work) {
  std::vector<StepTimes> steps;
  for (const Timeline& timeline : results.timelines)
    steps.push_back(step_times(plan, timeline, results.clock_uncertainty_ns));
  RunReport report;
  report.axes = comm_axes(plan).names;
  report.metrics = step_metrics(steps, work);
  report.ranks = rank_spreads(steps);
  report.breakdown = breakdown(steps);
  report.critical_path = critical_path(plan, results.timelines, results.clock_uncertainty_ns);
  add_stages(shape, steps, report);
  report.bubble = bubble_form(
      shape.mesh, shape.options,
      {report.forward_s, report.backward_s - report.weight_grad_s, report.weight_grad_s});
  report.collectives =
      profile_collectives(plan, results.timelines, results.clock_uncertainty_ns, results.links);
  report.links_source = results.links.source;
  report.no_measured = results.links.no_measured;
  report.link_fits = fit_links(report.collectives);
  report.no_speed = results.no_speed;
  if (!report.no_speed.empty()) leave_out_times(report);
  report.memory = memory_report(plan, shape, results.memory);
  report.traffic = traffic_report(plan, shape, results.traffic);
  for (const StepTimes& step : steps) report.invalid_spans += step.invalid_spans;
  add_memory(report.memory, report.metrics);
  add_training(shape.model, results.training, report.metrics);
  return report;
}

}  // namespace mb
