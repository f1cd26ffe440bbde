#include "bench/cli/profile_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "bench/analysis/intervals.h"
#include "bench/analysis/stats.h"
#include "bench/report/table.h"
#include "parallel/plan/text.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

double untraced_s(const Measured& measured) {
  std::vector<double> steps;
  for (const Timeline& timeline : measured.results.timelines)
    steps.push_back(1e-9 * static_cast<double>(length_ns(timeline.window())));
  return median(steps);
}
double overhead(const Measured& measured) {
  return median(measured.traced.step_s) / untraced_s(measured) - 1;
}

std::string label_of(const Measured& measured, const Difference& at) {
  return label_text(measured.plan,
                    measured.plan.program_of(at.rank).instructions[at.instruction].label);
}

// Where times mean nothing, counts alone are told.
bool timed(const Measured& measured) { return measured.results.no_speed.empty(); }
Json timed_json(const Measured& measured, double value) {
  return timed(measured) ? Json(value) : Json(nullptr);
}

Json difference_json(const Measured& measured, const std::optional<Difference>& at) {
  if (!at || !timed(measured)) return nullptr;
  return {{"s", 1e-9 * static_cast<double>(at->ns)},
          {"rank", at->rank},
          {"instruction", at->instruction},
          {"label", label_of(measured, *at)}};
}

std::string difference_text(const Measured& measured, const Difference& at) {
  return fmt::format("{} ({}, rank {})", format_duration(static_cast<double>(at.ns)),
                     label_of(measured, at), at.rank);
}

Json host_json(const Measured& measured, const HostTime& host) {
  const auto seconds = [&](std::int64_t ns) {
    return timed_json(measured, 1e-9 * static_cast<double>(ns));
  };
  return {{"waits", host.waits},
          {"waiting_s", seconds(host.waiting_ns)},
          {"stream_waits", host.stream_waits},
          {"overheads", host.overheads},
          {"overhead_s", seconds(host.overhead_ns)},
          {"allocations", host.allocations},
          {"allocated_bytes", host.allocated_bytes},
          {"without_time", host.without_time},
          {"out_of_window", host.out_of_window}};
}

}  // namespace

Json profile_json(const Measured& measured) {
  const auto& trace = measured.traced.trace;
  if (!trace)
    return {{"source", "device_events"}, {"reason", measured.traced.reason}, {"cupti", nullptr}};
  Json classes = Json::array();
  for (const ActivityClass& of_class : trace->classes)
    classes.push_back(
        {{"class", of_class.name},
         {"instructions", of_class.instructions},
         {"kernels", of_class.kernels},
         {"copies", of_class.copies},
         {"busy_s", timed_json(measured, 1e-9 * static_cast<double>(of_class.busy_ns))}});
  const TraceQuality& quality = trace->quality;
  return {{"source", "cupti"},
          {"reason", nullptr},
          {"cupti",
           {{"steps", trace->steps},
            {"ranks", trace->ranks},
            {"untraced_step_s", timed_json(measured, untraced_s(measured))},
            {"traced_step_s", timed_json(measured, median(measured.traced.step_s))},
            {"overhead", timed_json(measured, overhead(measured))},
            {"records",
             {{"placed", quality.placed},
              {"dropped", quality.dropped},
              {"without_time", quality.without_time},
              {"out_of_window", quality.out_of_window},
              {"uncorrelated", quality.uncorrelated}}},
            {"host", host_json(measured, trace->host)},
            {"begin_difference", difference_json(measured, trace->begin)},
            {"end_difference", difference_json(measured, trace->end)},
            {"classes", std::move(classes)}}}};
}

std::vector<std::string> profile_lines(const Measured& measured) {
  const auto& trace = measured.traced.trace;
  if (!trace) return {"by device events alone: " + measured.traced.reason};
  const TraceQuality& quality = trace->quality;
  const bool times = timed(measured);
  std::vector<std::string> lines = {
      fmt::format("by CUPTI, in {} step{} after the recorded ones{}", trace->steps,
                  trace->steps == 1 ? "" : "s",
                  times ? fmt::format(", which take {}; traced {}, {:+.2f} %",
                                      format_duration(1e9 * untraced_s(measured)),
                                      format_duration(1e9 * median(measured.traced.step_s)),
                                      100 * overhead(measured))
                        : cat("; times are not told: ", measured.results.no_speed)),
      fmt::format("records: {} placed, {} dropped, {} without a time, {} out of the step, {} of no "
                  "instruction",
                  quality.placed, quality.dropped, quality.without_time, quality.out_of_window,
                  quality.uncorrelated),
      times ? fmt::format("host, in all of them: {} waits for devices, under way for {}; CUPTI "
                          "itself took {} in {} spans; {} allocations",
                          trace->host.waits,
                          format_duration(static_cast<double>(trace->host.waiting_ns)),
                          format_duration(static_cast<double>(trace->host.overhead_ns)),
                          trace->host.overheads, trace->host.allocations)
            : fmt::format("host, in all of them: {} waits for devices; {} spans of CUPTI's own; {} "
                          "allocations",
                          trace->host.waits, trace->host.overheads, trace->host.allocations)};
  if (trace->host.without_time + trace->host.out_of_window > 0)
    lines.push_back(fmt::format("of the host's records {} without a time, {} out of the step",
                                trace->host.without_time, trace->host.out_of_window));
  if (times && trace->begin && trace->end)
    lines.push_back(fmt::format(
        "from device events at most {} at the end, and {} at the begin, "
        "where launches are waited for",
        difference_text(measured, *trace->end), difference_text(measured, *trace->begin)));
  return lines;
}

std::string profile_table(const Measured& measured) {
  const auto& trace = measured.traced.trace;
  if (!trace || trace->classes.empty()) return "";
  Table table({{"instructions", Align::left},
               {"count"},
               {"kernels"},
               {"each"},
               {"copies"},
               {"time"},
               {"share"}});
  std::int64_t total_ns = 0;
  for (const ActivityClass& of_class : trace->classes) total_ns += of_class.busy_ns;
  const double steps = trace->steps, each = steps * std::max(1, trace->ranks);
  const auto mean = [&](std::int64_t count) {
    return fmt::format("{:g}", static_cast<double>(count) / each);
  };
  for (const ActivityClass& of_class : trace->classes) {
    const auto busy_ns = static_cast<double>(of_class.busy_ns);
    table.add(
        {of_class.name, mean(of_class.instructions), mean(of_class.kernels),
         fmt::format("{:.2f}", static_cast<double>(of_class.kernels) /
                                   static_cast<double>(of_class.instructions)),
         mean(of_class.copies), timed(measured) ? format_duration(busy_ns / each) : "-",
         timed(measured)
             ? fmt::format("{:.2f} %", 100 * busy_ns / std::max(1.0, static_cast<double>(total_ns)))
             : "-"});
  }
  return "\nWork of the GPUs by CUPTI: means over steps and ranks of this process; memsets count "
         "as "
         "copies.\n" +
         table.to_text();
}

}  // namespace mb
