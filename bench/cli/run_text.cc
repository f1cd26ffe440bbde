#include "bench/cli/run_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "bench/analysis/stats.h"
#include "bench/cli/memory_text.h"
#include "bench/cli/profile_text.h"
#include "bench/cli/ranks.h"
#include "bench/report/table.h"
#include "parallel/comm/nccl_world.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

std::string seconds(double s) { return format_duration(1e9 * s); }
std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }
std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

// "123.4 ms (median of 5, 120.1 ms to 130.2 ms)", or why there is none.
template <class Format>
std::string spread(const RunReport& report, std::string_view name, Format format) {
  const Metric* metric = find(report.metrics, name);
  if (!metric || metric->samples.empty()) return metric ? metric->reason : "not measured";
  const auto [low, high] = std::minmax_element(metric->samples.begin(), metric->samples.end());
  std::string text = format(median(metric->samples));
  if (metric->samples.size() > 1)
    text += fmt::format(" (median of {}, {} to {})", metric->samples.size(), format(*low),
                        format(*high));
  return text;
}

std::string verification_text(const Measured& measured) {
  if (!measured.verification) return "no: " + measured.not_verified;
  const Verification& v = *measured.verification;
  return fmt::format("{}, {}: largest error {:.1e} in {}, tolerance {:.0e}",
                     v.ok ? "yes" : "FAILED", v.by, v.gradient.relative,
                     v.gradient.tensor.empty() ? "none" : v.gradient.tensor, v.tolerance);
}

// Seconds of the bubble by what the stage did meanwhile, means over stages.
struct BubbleParts {
  double window_s = 0, idle_s = 0;
  std::vector<double> transfer_s, wait_s;  // by axis
};
BubbleParts parts_of(const StageSummary& stage) {
  BubbleParts parts{.window_s = stage.window_s};
  for (const StagePhase* phase : {&stage.warm_up, &stage.steady, &stage.cool_down}) {
    parts.idle_s += phase->idle_s + phase->memory_s;
    parts.transfer_s.resize(phase->transfer_s.size());
    parts.wait_s.resize(phase->wait_s.size());
    for (std::size_t axis = 0; axis < phase->transfer_s.size(); ++axis) {
      parts.transfer_s[axis] += phase->transfer_s[axis];
      parts.wait_s[axis] += phase->wait_s[axis];
    }
  }
  return parts;
}
double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// "pp wait 1.6 %, tp transfer 9.2 %, idle 0.1 %": what the bubble consists of.
std::string bubble_parts_text(const RunReport& report) {
  const double stages = static_cast<double>(std::max<std::size_t>(1, report.stages.size()));
  std::string text;
  const auto add = [&](const std::string& name, auto of) {
    double share = 0;
    for (const StageReport& stage : report.stages) {
      const BubbleParts parts = parts_of(stage.measured);
      share += of(parts) / std::max(1e-30, parts.window_s) / stages;
    }
    if (share >= 0.00005) text += cat(text.empty() ? "" : ", ", name, " ", percent(share));
  };
  for (std::size_t axis = 0; axis < report.axes.size(); ++axis) {
    add(report.axes[axis] + " wait", [axis](const BubbleParts& p) { return p.wait_s[axis]; });
    add(report.axes[axis] + " transfer",
        [axis](const BubbleParts& p) { return p.transfer_s[axis]; });
  }
  add("idle", [](const BubbleParts& p) { return p.idle_s; });
  return text;
}

// "compute 81.2 % (matmul 70.3 %, other 10.9 %), tp 9.0 %, waiting for other stages 9.8 %".
std::string critical_path_text(const CriticalPath& path, bool pipeline) {
  const double window = std::max(1.0, static_cast<double>(path.window_ns));
  const auto share = [&](std::int64_t ns) { return percent(static_cast<double>(ns) / window); };
  std::string families, rest;
  std::int64_t compute_ns = 0;
  for (const PathPart& part : path.parts) {
    if (static_cast<double>(part.total_ns) < 5e-5 * window) continue;
    const bool compute = part.kind == "compute";
    std::string name = part.text();
    if (part.kind == "wait") name = pipeline ? "bubble and waiting" : "waiting for slower ranks";
    if (compute) compute_ns += part.total_ns;
    std::string& list = compute ? families : rest;
    list += cat(list.empty() ? "" : ", ", name, " ", share(part.total_ns));
  }
  return cat("compute ", share(compute_ns), families.empty() ? "" : cat(" (", families, ")"),
             rest.empty() ? "" : ", ", rest);
}

// "1024 -> 512, 1 step skipped"
std::string loss_scale_text(const std::vector<Training>& training) {
  const auto skipped = std::count_if(training.begin(), training.end(),
                                     [](const Training& step) { return step.skipped; });
  return fmt::format("{:g} -> {:g}, {} step{} skipped", training.front().loss_scale,
                     training.back().loss_scale, skipped, skipped == 1 ? "" : "s");
}

std::string cuda_ranks_text(const Case& c, const Measured& measured) {
  const int world = c.mesh.world(), devices = static_cast<int>(measured.cuda.size());
  return fmt::format("{} as {} on {} GPU{}{} ({}){}", world,
                     on_mpi(c.mode) ? cat("processes of ", mpi_text(), ",") : "threads", devices,
                     devices == 1 ? "" : "s", on_mpi(c.mode) ? " for rank 0" : "",
                     devices == 0 ? "none" : measured.cuda.front().name,
                     world == 1        ? ""
                     : on_nccl(c.mode) ? cat("; they communicate by NCCL ", nccl_versions().library)
                                       : "; they communicate through memory of the host");
}

std::string ranks_text(const Case& c, const Measured& measured, const Peak& peak) {
  const int world = c.mesh.world();
  if (c.mode == Mode::sim) return fmt::format("{} in virtual time on {}", world, c.machine.name);
  if (on_cuda(c.mode)) return cuda_ranks_text(c, measured);
  return fmt::format(
      "{} as {} on {} core{}{}", world,
      on_mpi(c.mode) ? cat("processes of ", mpi_text(), ",") : "threads", peak.devices,
      peak.devices == 1 ? "" : "s",
      world > peak.devices ? "; they share cores, and waiting includes waiting for one" : "");
}

// Of the device that is fullest.
std::string device_memory_text(const std::vector<CudaFacts>& devices) {
  if (devices.empty()) return "not known on the devices";
  const CudaFacts& fullest = *std::max_element(
      devices.begin(), devices.end(),
      [](const CudaFacts& a, const CudaFacts& b) { return a.used_bytes < b.used_bytes; });
  return fmt::format(
      "{} allocated on device {}, of {} used; the rest is the driver's context, libraries and "
      "other "
      "processes",
      bytes(fullest.allocated_bytes), fullest.device, bytes(fullest.used_bytes));
}

std::string summary(const Case& c, const Measured& measured, const RunReport& report,
                    const Peak& peak) {
  const bool virtual_time = c.mode == Mode::sim;
  std::string text = to_text(c) + "\n\n";
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  line("ranks", ranks_text(c, measured, peak));
  const std::string& no_speed = report.no_speed;
  if ((on_mpi(c.mode) || on_cuda(c.mode)) && no_speed.empty())
    line("clocks",
         measured.results.clock_uncertainty_ns == 0
             ? "one, as all ranks are on one machine"
             : fmt::format(
                   "of any two ranks within {} of each other",
                   format_duration(static_cast<double>(measured.results.clock_uncertainty_ns))));
  if (on_cuda(c.mode)) {
    line("matmul", c.tf32 ? "cuBLASLt in TF32" : "cuBLASLt");
    for (const std::string& backend : measured.cuda_attention)
      line(&backend == measured.cuda_attention.data() ? "attention" : "", backend);
  } else if (!virtual_time) {
    line("matmul", fmt::format("{}, row kernels {}", matmul_backend(c.options.dtype), cpu_isa()));
  }
  line("step time", spread(report, "step_s", seconds));
  line("throughput",
       spread(report, "tokens_per_s", [](double x) { return format_count(x); }) +
           (find(report.metrics, "tokens_per_s")->samples.empty() ? "" : " tokens/s"));
  line("MFU", spread(report, "mfu", percent));
  line("HFU", spread(report, "hfu", percent));
  if (peak.flops_per_s)
    line("",
         fmt::format("{} convention; of {} device{} at {}: {}", name_of(FlopConvention::megatron),
                     peak.devices, peak.devices == 1 ? "" : "s",
                     format_flop_rate(*peak.flops_per_s), peak.source));
  if (c.mesh.size(Axis::pp) > 1) {
    line("bubble", spread(report, "bubble_fraction", percent) + " of the pipeline's time");
    if (no_speed.empty()) line("", "made of " + bubble_parts_text(report));
    if (!measured.on_own_cores.empty())
      line("", spread(report, "bubble_fraction_own_cores", percent) +
                   " replayed with a core for every rank and free communication");
    if (no_speed.empty())
      line("", report.bubble
                   ? fmt::format("{} in theory: equal stages, free communication, {}",
                                 percent(report.bubble->of_window()), bubble_source(c.options))
                   : "not known in theory: " + no_bubble_form(c.options));
  }
  line("critical path", no_speed.empty()
                            ? critical_path_text(report.critical_path, c.mesh.size(Axis::pp) > 1)
                            : no_speed);
  if (!measured.training.empty()) {
    line("loss",
         fmt::format("{:.4f} -> {:.4f} in {} steps{}", measured.training.front().loss,
                     measured.training.back().loss, measured.training.size(),
                     measured.entropy_nats ? fmt::format("; the entropy of the source is {:.4f}",
                                                         *measured.entropy_nats)
                                           : ""));
    line("gradient norm", fmt::format("{:.4f} -> {:.4f}", measured.training.front().gradient_norm,
                                      measured.training.back().gradient_norm));
    if (c.model.experts > 1)
      line("balance loss",
           fmt::format("{:.4f} -> {:.4f}, beside the loss", measured.training.front().balance_loss,
                       measured.training.back().balance_loss));
    if (c.options.dynamic_loss_scale || c.options.loss_scale != 1)
      line("loss scale", loss_scale_text(measured.training));
    line("data", measured.data);
  }
  const auto size_of_metric = [&](std::string_view name) {
    return spread(report, name, [](double x) { return format_bytes(x); });
  };
  line("peak memory",
       fmt::format(
           "{} live on rank {} ({}), {} reserved for it",
           bytes(report.memory.total.measured_bytes.value_or(report.memory.total.plan_bytes)),
           report.memory.rank,
           report.memory.total.measured_bytes ? "counted as it takes and gives back its tensors"
                                              : "planned",
           size_of_metric("reserved_bytes")));
  if (report.memory.host.plan_bytes > 0)
    line("", size_of_metric("peak_host_bytes") + " in the second memory space, for offload");
  if (!virtual_time)
    line("", size_of_metric("process_peak_rss_bytes") +
                 " resident in this process, all ranks and the check of the first step included");
  if (on_cuda(c.mode)) line("", device_memory_text(measured.cuda));
  if (on_cuda(c.mode)) {
    const std::vector<std::string> lines = profile_lines(measured);
    for (std::size_t i = 0; i < lines.size(); ++i) line(i == 0 ? "traced" : "", lines[i]);
  }
  line("verified", verification_text(measured));
  return text;
}

std::string breakdown_text(const Breakdown& breakdown) {
  Table table({{"where the step went", Align::left}, {"axis", Align::left}, {"time"}, {"share"}});
  const double total = static_cast<double>(breakdown.window_ns) * breakdown.ranks;
  const double each = static_cast<double>(std::max(1, breakdown.ranks * breakdown.steps));
  const auto add = [&](std::string name, const std::string& axis, std::int64_t ns) {
    std::replace(name.begin(), name.end(), '_', ' ');
    table.add({name, axis, format_duration(static_cast<double>(ns) / each),
               percent(static_cast<double>(ns) / std::max(1.0, total))});
  };
  std::int64_t total_ns = 0;
  for (const BreakdownPart& part : breakdown.parts) {
    total_ns += part.total_ns;
    const std::string name = part.name == "memory" ? "exposed copies" : part.name;
    if (part.total_ns > 0) add(name, part.axis, part.total_ns);
    if (part.name != "compute") continue;
    for (const PassShare& pass : breakdown.passes)
      if (pass.name != "optimizer") add("  " + pass.name, "", pass.total_ns);
  }
  add("sum = mean step", "", total_ns);
  for (const HiddenComm& hidden : breakdown.overlapped) {
    if (hidden.transfer_ns > 0) add("(moved behind compute)", hidden.axis, hidden.transfer_ns);
  }
  return "\nMean over ranks and steps. Compute goes before communication, transfer before "
         "waiting. Indented: part of compute.\n" +
         table.to_text();
}

std::string stages_text(const RunReport& report) {
  Table table({{"stage"},
               {"compute"},
               {"bubble"},
               {"share"},
               {"transfer"},
               {"wait"},
               {"idle"},
               {"warm-up"},
               {"steady"},
               {"cool-down"},
               {"theory: warm-up"},
               {"cool-down"},
               {"sum"}});
  for (const StageReport& stage : report.stages) {
    const StageSummary& m = stage.measured;
    const BubbleParts parts = parts_of(m);
    std::vector<std::string> cells = {cat(m.stage),
                                      seconds(m.compute_s),
                                      seconds(m.bubble_s()),
                                      percent(m.bubble_s() / std::max(1e-30, m.window_s)),
                                      seconds(sum(parts.transfer_s)),
                                      seconds(sum(parts.wait_s)),
                                      seconds(parts.idle_s),
                                      seconds(m.warm_up.bubble_s()),
                                      seconds(m.steady.bubble_s()),
                                      seconds(m.cool_down.bubble_s())};
    const auto& phases = stage.closed_form;
    cells.push_back(phases ? seconds(phases->warm_up) : "-");
    cells.push_back(phases ? seconds(phases->cool_down) : "-");
    cells.push_back(report.bubble ? seconds(report.bubble->idle) : "-");
    table.add(cells);
  }
  const std::string split = report.weight_grad_s > 0 ? fmt::format(" ({} of it weight gradients)",
                                                                   seconds(report.weight_grad_s))
                                                     : "";
  return fmt::format(
             "\nPipeline bubble by rank of the pipeline (stage) and phase. Theory takes the mean "
             "forward {} and backward {}{} of a micro-batch there.\n",
             seconds(report.forward_s), seconds(report.backward_s), split) +
         table.to_text();
}

// What the links could do, if that is known, and the lines through what they did.
std::string links_text(const RunReport& report) {
  std::string text;
  const CollectiveProfile* none = nullptr;
  bool measured = false;
  for (const CollectiveProfile& p : report.collectives) {
    if (p.algorithm && text.empty())
      text = cat("Algorithm of collectives: ", name_of(*p.algorithm), ".\n");
    if (!p.no_ceiling.empty() && p.link != LinkClass::none) none = &p;
  }
  if (none) text += cat("No ceilings: ", none->no_ceiling, ".\n");
  if (!report.links_source.empty()) text += cat("Ceilings: ", report.links_source, ".\n");
  if (!report.no_measured.empty()) text += cat("No measured rates: ", report.no_measured, ".\n");
  for (const CollectiveProfile& p : report.collectives)
    measured |= p.measured_bytes_per_s.has_value();
  if (measured)
    text +=
        "Measured: busbw of a large operation of that kind on the same groups, before the run.\n";
  for (const LinkClassFit& of_class : report.link_fits) {
    const LinkFit& fit = of_class.fit;
    text += cat("Links ", name_of(of_class.link), ": ");
    if (!fit.bytes_per_s) {
      text += cat("no line through the transfers: ", fit.reason, ".\n");
      continue;
    }
    text += fmt::format(
        "latency {}, bandwidth {} by the transfers of {} sizes; they are {} off, in "
        "the median.\n",
        seconds(*fit.latency_s), format_bandwidth(*fit.bytes_per_s), fit.sizes, percent(fit.error));
  }
  return text;
}

std::string collectives_text(const RunReport& report) {
  Table table({{"axis", Align::left},
               {"kind", Align::left},
               {"site", Align::left},
               {"ranks"},
               {"size"},
               {"count"},
               {"wait"},
               {"transfer"},
               {"algbw GB/s"},
               {"busbw GB/s"},
               {"links", Align::left},
               {"of ceiling"},
               {"of measured"}});
  bool uneven = false;
  for (const CollectiveProfile& p : report.collectives) {
    uneven |= p.kind == "all_to_all_v";
    const auto rate = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.3f}", *value * 1e-9) : "-";
    };
    const auto time = [&](double s) { return report.no_speed.empty() ? seconds(s) : "-"; };
    table.add({p.axis, p.kind, p.site, cat(p.group_size), bytes(p.bytes), cat(p.count),
               time(p.wait_s), time(p.transfer_s), rate(p.algbw_bytes_per_s),
               rate(p.busbw_bytes_per_s), std::string(name_of(p.link)),
               p.ceiling_fraction() ? percent(*p.ceiling_fraction()) : "-",
               p.measured_fraction() ? percent(*p.measured_fraction()) : "-"});
  }
  return cat("\nCommunication over all groups and recorded steps",
             report.no_speed.empty() ? ": median wait for the last participant, median transfer "
                                       "once it was there; 1 GB is 1e9 bytes.\n"
                                     : cat(", without times: ", report.no_speed, ".\n")) +
         table.to_text() +
         (uneven ? "Sizes of all_to_all_v as if every expert got the same.\n" : "") +
         links_text(report);
}

std::string traffic_text(const RunReport& report) {
  Table table({{"stage"},
               {"axis", Align::left},
               {"kind", Align::left},
               {"calls: theory"},
               {"plan"},
               {"counted"},
               {"bytes: theory"},
               {"plan"},
               {"counted"},
               {"equal", Align::left}});
  for (const AxisTraffic& axis : by_axis(report.traffic)) {
    const auto& [form, plan, counted, equal] = axis.numbers;
    table.add({cat(axis.stage), name_of(axis.group), axis.kinds, cat(form.calls), cat(plan.calls),
               counted ? cat(counted->calls) : "-", cat(form.bytes), cat(plan.bytes),
               counted ? cat(counted->bytes) : "-", equal ? "yes" : "NO"});
  }
  return "\nTraffic of one rank in a step: bytes of the full tensors; 'meshbench traffic' tells "
         "what "
         "each is for.\n" +
         table.to_text();
}

}  // namespace

Metric own_cores_bubble(const Measured& measured) {
  constexpr const char* kName = "bubble_fraction_own_cores";
  if (measured.on_own_cores.empty())
    return absent(kName, "1",
                  measured.training.empty() ? "virtual time has a device for every rank"
                                            : "streams of a GPU keep no time of their own");
  std::vector<StepTimes> steps;
  for (const Timeline& timeline : measured.on_own_cores)
    steps.push_back(step_times(measured.plan, timeline));
  const std::vector<Metric> metrics = step_metrics(steps, {});
  Metric bubble = *find(metrics, "bubble_fraction");
  bubble.name = kName;
  return bubble;
}

std::string run_text(const Case& c, const Measured& measured, const RunReport& report,
                     const Peak& peak, bool brief) {
  std::string text = summary(c, measured, report, peak);
  if (brief) return text;
  const bool timed = report.no_speed.empty();
  text += timed ? breakdown_text(report.breakdown)
                : cat("\nWhere the step went is not told: ", report.no_speed, ".\n");
  if (timed && c.mesh.size(Axis::pp) > 1) text += stages_text(report);
  if (!report.collectives.empty()) text += collectives_text(report);
  text += fmt::format("\nMemory of rank {} (stage {}), the largest. ", report.memory.rank,
                      report.memory.stage) +
          memory_text(report.memory);
  if (!report.traffic.empty()) text += traffic_text(report);
  text += profile_table(measured);
  return text;
}

}  // namespace mb
