#include "bench/cli/fit_text.h"

#include <fmt/format.h>

#include <cmath>

#include "workloads/base/error.h"

namespace mb {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string errors_text(double error, double held_out, double worst) {
  return cat("off by ", percent(error), ", on rows held out by ", percent(held_out), " (worst ",
             percent(worst), ")");
}
std::string errors_text(const ConstantsFit& fit) {
  return errors_text(fit.error, fit.held_out, fit.held_out_worst);
}

Json constant_json(std::string_view name, double value, int rows, const std::string& source,
                   const ConstantsFit& fit) {
  return {{"constant", name},
          {"value", value},
          {"rows", rows},
          {"source", source},
          {"error", fit.error},
          {"held_out_error", fit.held_out},
          {"held_out_worst", fit.held_out_worst}};
}

std::string trace_text(const TraceFacts& t) {
  std::string text = cat("  ", t.source, ": ");
  text += t.launch_us
              ? fmt::format("a launch every {:.1f} us ({} of them)", *t.launch_us, t.launches)
              : fmt::format("{} launches, too few for a median", t.launches);
  text += t.gap_us ? fmt::format(", {:.1f} us between kernels ({})", *t.gap_us, t.gaps)
                   : fmt::format(", {} gaps between kernels, too few", t.gaps);
  text += t.handoff_us
              ? fmt::format(", {:.1f} us from stream to stream ({})", *t.handoff_us, t.handoffs)
              : "";
  text += t.jitter ? fmt::format(", kernels alike differ by {:.1f} % ({} kernels)", 100 * *t.jitter,
                                 t.repeated)
                   : "";
  return text + "\n";
}

void add_machine(std::string& text, const FitReport& r, const Machine& machine) {
  text += cat("machine ", machine.name, "\n");
  for (const FittedCurve& c : r.collectives.curves)
    text +=
        fmt::format("  {}: {} segments from {} rows of {}; {}\n",
                    group_name(c.curve.kind, c.curve.ranks, c.curve.nodes), c.curve.segments.size(),
                    c.rows, c.source, errors_text(c.error, c.held_out, c.held_out_worst));
  if (r.collectives.link.latency_s)
    text += fmt::format(
        "  link_latency_us {:.4g}, link_gb_per_s {:.4g}: from {} rows of {}; off by {} (median), "
        "on "
        "rows held out by {} (mean)\n",
        machine.intra.latency_us, machine.intra.gb_per_s, r.collectives.link.samples,
        r.collectives.link_source, percent(r.collectives.link.error),
        percent(r.collectives.link_held_out));
  if (r.collectives.nic)
    text += fmt::format("  nic_latency_us {:.4g}, nic_gb_per_s {:.4g}: from {} rows of {}; {}\n",
                        machine.inter.latency_us, machine.inter.gb_per_s, r.collectives.nic_rows,
                        r.collectives.nic_source, errors_text(*r.collectives.nic));
  if (r.operations.operations > 0)
    text += fmt::format("  measured times of {} operations, from {}\n", r.operations.operations,
                        r.operations.source);
  if (r.measured_comm > 0)
    text += cat("  measured times of ", machine.measured.sources.at("measured_comm"), "\n");
  if (r.operations.matmul)
    text += fmt::format(
        "  matmul_efficiency {:.3g}, memory_efficiency {:.3g}, launch_us {:.3g}: from {} matmuls; "
        "{}\n",
        machine.matmul_efficiency, machine.memory_efficiency, machine.launch_us,
        r.operations.matmuls, errors_text(*r.operations.matmul));
  for (const std::string& bound : r.operations.at_bounds) text += cat("  ", bound, "\n");
}

void add_stack(std::string& text, const FitReport& r, const Stack& stack) {
  text += cat("stack ", stack.name, "\n");
  if (!r.host_source.empty())
    text += fmt::format("  host_us {:.3g}: from {}\n", stack.host_us, r.host_source);
  if (!r.steps.fit) return;
  for (std::size_t c = 0; c < r.steps.names.size(); ++c)
    text += fmt::format("  {} {:.4g}\n", r.steps.names[c], r.steps.fit->values[c]);
  text += fmt::format("  from {} steps of {}; {}\n", r.steps.rows, r.steps.source,
                      errors_text(*r.steps.fit));
  text += fmt::format("  80 % of steps should lie within a factor of {:.3f}\n",
                      std::exp(1.2816 * stack.log_sigma));
}

Json refused_of(const FitReport& r) {
  Json refused = Json::array();
  for (const auto* list : {&r.collectives.refused, &r.operations.refused, &r.steps.refused})
    for (const std::string& why : *list) refused.push_back(why);
  return refused;
}

}  // namespace

std::string to_text(const FitReport& r, const Machine& machine, const Stack& stack) {
  std::string text;
  if (r.found_for_machine()) add_machine(text, r, machine);
  if (r.found_for_stack()) add_stack(text, r, stack);
  if (!r.traces.empty()) text += "traces\n";
  for (const TraceFacts& trace : r.traces) text += trace_text(trace);
  const Json refused = refused_of(r);
  if (!refused.empty()) text += "not fitted\n";
  for (const Json& why : refused) text += cat("  ", why.get<std::string>(), "\n");
  if (!r.notes.empty()) text += "left out\n";
  for (std::size_t i = 0; i < r.notes.size() && i < 10; ++i) text += cat("  ", r.notes[i], "\n");
  if (r.notes.size() > 10) text += cat("  and ", r.notes.size() - 10, " more\n");
  if (r.width.empty()) return text;
  text += cat("where the width comes from, of ", r.width_case, "\n");
  for (const WidthPart& part : r.width) {
    if (part.share >= 0.005)
      text += fmt::format("  {:5.1f} %  {}: may be off by {:.0f} %, the step then by {:.2f} %\n",
                          100 * part.share, part.name, 100 * part.error, 100 * part.effect);
  }
  return text + cat("measure next: ", r.width.front().measure, "\n");
}

Json to_json(const FitReport& r, const Machine& machine, const Stack& stack) {
  Json json = {{"machine", machine.name},
               {"stack", stack.name},
               {"curves", Json::array()},
               {"constants", Json::array()},
               {"measured_ops", r.operations.operations},
               {"measured_comm", r.measured_comm},
               {"traces", Json::array()},
               {"refused", refused_of(r)},
               {"left_out", r.notes}};
  for (const FittedCurve& c : r.collectives.curves)
    json["curves"].push_back({{"operation", name_of(c.curve.kind)},
                              {"ranks", c.curve.ranks},
                              {"nodes", c.curve.nodes},
                              {"segments", c.curve.segments.size()},
                              {"rows", c.rows},
                              {"source", c.source},
                              {"error", c.error},
                              {"held_out_error", c.held_out},
                              {"held_out_worst", c.held_out_worst}});
  Json& constants = json["constants"];
  if (const LinkFit& link = r.collectives.link; link.latency_s) {
    for (const auto& [name, value] : {std::pair("link_latency_us", machine.intra.latency_us),
                                      std::pair("link_gb_per_s", machine.intra.gb_per_s)})
      constants.push_back({{"constant", name},
                           {"value", value},
                           {"rows", link.samples},
                           {"source", r.collectives.link_source},
                           {"error", link.error},
                           {"held_out_error", r.collectives.link_held_out}});
  }
  const auto add = [&](std::vector<std::string> names, const std::optional<ConstantsFit>& fit,
                       int rows, const std::string& source) {
    for (std::size_t c = 0; fit && c < names.size(); ++c)
      constants.push_back(constant_json(names[c], fit->values[c], rows, source, *fit));
  };
  add({"nic_latency_us", "nic_gb_per_s"}, r.collectives.nic, r.collectives.nic_rows,
      r.collectives.nic_source);
  add({"matmul_efficiency", "memory_efficiency", "launch_us"}, r.operations.matmul,
      r.operations.matmuls, r.operations.source);
  add(r.steps.names, r.steps.fit, r.steps.rows, r.steps.source);
  if (!r.host_source.empty())
    constants.push_back(
        {{"constant", "host_us"}, {"value", stack.host_us}, {"source", r.host_source}});
  const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  for (const TraceFacts& t : r.traces)
    json["traces"].push_back({{"source", t.source},
                              {"launch_us", or_null(t.launch_us)},
                              {"launches", t.launches},
                              {"gap_us", or_null(t.gap_us)},
                              {"gaps", t.gaps},
                              {"handoff_us", or_null(t.handoff_us)},
                              {"handoffs", t.handoffs},
                              {"jitter", or_null(t.jitter)},
                              {"kernels", t.kernels}});
  json["width"] = {{"case", r.width_case}, {"parts", Json::array()}, {"measure_next", nullptr}};
  for (const WidthPart& part : r.width)
    json["width"]["parts"].push_back({{"name", part.name},
                                      {"error", part.error},
                                      {"effect", part.effect},
                                      {"share", part.share},
                                      {"measure", part.measure}});
  if (!r.width.empty()) json["width"]["measure_next"] = r.width.front().measure;
  return json;
}

}  // namespace mb
