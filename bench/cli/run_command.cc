#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "bench/cli/case_params.h"
#include "bench/cli/commands.h"
#include "bench/cli/explained_case.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/measure.h"
#include "bench/cli/nearby_cases.h"
#include "bench/cli/outer_memory.h"
#include "bench/cli/outputs.h"
#include "bench/cli/peak.h"
#include "bench/cli/profile_text.h"
#include "bench/cli/ranks.h"
#include "bench/cli/run_text.h"
#include "bench/report/output.h"
#include "bench/report/row.h"
#include "bench/report/trace.h"
#include "parallel/comm/nccl_world.h"
#include "parallel/exec/predict.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string out, trace, timeline;
  bool json = false, quiet = false, no_progress = false;
};

// A line that is drawn over and over on a terminal; elsewhere one line at most every 30 s.
class ProgressLine {
 public:
  explicit ProgressLine(bool wanted)
      : wanted_(wanted),
        terminal_(isatty(STDERR_FILENO) && !std::getenv("CI")),
        start_(Clock::now()),
        last_(start_) {}

  bool operator()(int done, int total) {
    const auto now = Clock::now();
    if (wanted_ && done > 0 && (terminal_ || now - last_ > std::chrono::seconds(30))) {
      const double elapsed = std::chrono::duration<double>(now - start_).count();
      const double left = elapsed / done * (total - done);
      if (terminal_) {
        fmt::print(stderr, "\r\033[Kstep {}/{}, {:.0f} s left", done, total, left);
        if (done == total) fmt::print(stderr, "\r\033[K");
      } else {
        fmt::print(stderr, "step {}/{}, {:.0f} s left\n", done, total, left);
      }
      std::fflush(stderr);
      last_ = now;
    }
    return !Interrupts::interrupted();
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool wanted_, terminal_;
  Clock::time_point start_, last_;
};

void check_places(const Flags& flags) {
  check_outputs({{"--out", flags.out}, {"--trace", flags.trace}, {"--timeline", flags.timeline}},
                "--out");
}

// What a device would have to hold, where the machine has less, and what would do.
std::optional<std::string> memory_objection(const Case& c, const Measured& measured) {
  if (c.mode != Mode::sim) return std::nullopt;
  const StepMemory memory = memory_of(measured.plan, c.machine, c.stack);
  const double needed = static_cast<double>(memory.total()), capacity = 1e9 * c.machine.memory_gb;
  if (needed <= capacity) return std::nullopt;
  const std::string nearest = nearest_that_fits(c);
  return cat("a rank needs ", format_bytes(needed), " of the ", format_bytes(capacity), " that ",
             c.machine.name, " has, ", format_bytes(needed - capacity),
             " too much: ", format_bytes(static_cast<double>(memory.planned + memory.stack)),
             " of tensors, ",
             format_bytes(static_cast<double>(memory.rounding + memory.fragmentation)),
             " that an allocator rounds and leaves between, ",
             format_bytes(static_cast<double>(memory.library + memory.context)),
             " of libraries and context; ",
             nearest.empty() ? "more recomputation, smaller micro-batches and ZeRO do not help, so "
                               "take more ranks for tp or pp"
                             : "the nearest that fits: " + nearest);
}

double step_s(const Measured& measured) {
  const Span window = measured.results.timelines.back().window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

Json prediction_of(const Case& c, const Measured& measured) {
  const StepInterval interval = interval_of(step_s(measured), c.mesh, c.machine, c.stack);
  return {{"step_low_s", interval.low_s},
          {"step_high_s", interval.high_s},
          {"covers", 0.8},
          {"measured_ops", op_coverage(measured.plan, c.machine).measured},
          {"modelled_ops", op_coverage(measured.plan, c.machine).modelled},
          {"calibrated_on", c.stack.source},
          {"extrapolated", interval.extrapolated},
          {"not_modelled", not_modelled(c.model, c.mesh, c.options, c.stack, variation_of(c))},
          {"without_effect", inputs_without_effect(c)}};
}

std::string prediction_text(const Case& c, const Measured& measured) {
  const StepInterval interval = interval_of(step_s(measured), c.mesh, c.machine, c.stack);
  std::string text = fmt::format(
      "prediction      80 % of measured steps lie between {} and {}\n                calibrated "
      "on: {}\n",
      format_duration(1e9 * interval.low_s), format_duration(1e9 * interval.high_s),
      c.stack.source);
  if (const OpCoverage ops = op_coverage(measured.plan, c.machine); ops.measured > 0)
    text += fmt::format("                {} of {} operations take the time that was measured\n",
                        ops.measured, ops.measured + ops.modelled);
  for (const std::string& reason : interval.extrapolated)
    text += fmt::format("                extrapolated: {}\n", reason);
  for (const std::string& input : inputs_without_effect(c))
    text +=
        fmt::format("warning         {} changes nothing here: no operation hangs on it\n", input);
  text += fmt::format(
      "                not modelled: {}\n",
      fmt::join(not_modelled(c.model, c.mesh, c.options, c.stack, variation_of(c)), "; "));
  return text;
}

Json cuda_json(const Measured& measured) {
  Json devices = Json::array();
  for (const CudaFacts& facts : measured.cuda)
    devices.push_back({{"device", facts.device},
                       {"name", facts.name},
                       {"total_bytes", facts.total_bytes},
                       {"used_bytes", facts.used_bytes},
                       {"allocated_bytes", facts.allocated_bytes}});
  return {{"devices", std::move(devices)},
          {"attention", measured.cuda_attention},
          {"clock_uncertainty_ns", measured.results.clock_uncertainty_ns}};
}

Json nccl_json() {
  const NcclVersions versions = nccl_versions();
  return {{"library", versions.library},
          {"header", versions.header},
          {"algorithm", nullptr},
          {"protocol", nullptr},
          {"transport", nullptr},
          {"reason", "NCCL tells what it chose to its log alone: NCCL_DEBUG=INFO"}};
}

Json make_row(const Case& c, const Measured& measured, const RunReport& report, const Peak& peak,
              const Flags& flags) {
  RowHead head = head_of(c);
  if (!flags.trace.empty()) head.artifacts["trace"] = flags.trace;
  if (!flags.timeline.empty()) head.artifacts["timeline"] = flags.timeline;
  Json row = row_head(head);
  RowStep step{.mode = std::string(name_of(c.mode)),
               .virtual_time = c.mode == Mode::sim,
               .warm_up_steps = c.mode == Mode::sim ? 0 : c.warm_up,
               .devices = peak.devices,
               .peak_flops_per_s = peak.flops_per_s,
               .peak_source = peak.source};
  if (measured.verification) {
    step.verified = measured.verification->ok;
    step.verified_by = measured.verification->by;
    step.verified_error = measured.verification->gradient.relative;
  } else {
    step.verified_by = "not checked: " + measured.not_verified;
  }
  add_step(row, {c.model, c.mesh, c.options}, report, step);
  if (const auto objection = memory_objection(c, measured)) {
    set_status(row, "oom_predicted",
               {{"message", *objection},
                {"needed_bytes", report.memory.total.plan_bytes},
                {"capacity_bytes", static_cast<std::int64_t>(1e9 * c.machine.memory_gb)}});
  }
  if (measured.interrupted) set_status(row, "cancelled", {{"message", *measured.interrupted}});
  row["model"] = Json::parse(to_json(c.model));
  if (c.mode == Mode::sim) {
    row["machine"] = Json::parse(to_json(c.machine));
    row["stack"] = Json::parse(to_json(c.stack));
    row["prediction"] = prediction_of(c, measured);
    add_variation(row, c, *measured.variation);
  }
  if (on_mpi(c.mode)) add_mpi(row, measured.results.clock_uncertainty_ns);
  if (on_cuda(c.mode)) {
    row["cuda"] = cuda_json(measured);
    row["profile"] = profile_json(measured);
  }
  if (on_nccl(c.mode)) row["nccl"] = nccl_json();
  if (!measured.training.empty()) {
    Json losses = Json::array();
    int skipped = 0;
    for (const Training& training : measured.training) {
      losses.push_back(training.loss);
      skipped += training.skipped;
    }
    row["training"] = {
        {"data", measured.data},
        {"losses", losses},
        {"skipped_steps", skipped},
        {"entropy_nats", measured.entropy_nats ? Json(*measured.entropy_nats) : Json(nullptr)}};
  }
  return row;
}

void write_row(const Flags& flags, const Json& row) {
  if (!flags.out.empty() && flags.out != "-") write_json(flags.out, row);
  if (flags.json || flags.out == "-") fmt::print("{}\n", row.dump(2));
}

// Its row, too.
[[noreturn]] void report_out_of_memory(const Case& c, const Flags& flags,
                                       const OutOfMemory& error) {
  Json row = row_head(head_of(c));
  set_out_of_memory(row, error);
  if (reports()) write_row(flags, row);
  throw Exit(kExitOutOfMemory, error.what());
}

// Of an interrupted run the row alone, and only where none is: that of a whole run is worth more.
void write_outputs(const Flags& flags, const Measured& measured, const Json& row) {
  if (measured.interrupted) {
    if (!std::filesystem::is_regular_file(flags.out)) write_row(flags, row);
    return;
  }
  const Timeline& last = measured.results.timelines.back();
  if (!flags.timeline.empty()) {
    write_whole(flags.timeline, [&](std::ostream& out) { save(last, out); });
  }
  if (!flags.trace.empty()) {
    save_trace(flags.trace, measured.plan, last);
  }
  write_row(flags, row);
}

Measured measure_until_interrupted(const Case& c, const Flags& flags) {
  const Interrupts interrupts(
      reports() ? "\nmeshbench: stopping after this step; interrupt again to stop at once\n" : "");
  ProgressLine progress(reports() && !flags.no_progress && !flags.quiet);
  try {
    return measure(c, [&](int done, int total) { return progress(done, total); });
  } catch (const OutOfMemory& error) {
    report_out_of_memory(c, flags, error);
  }
}

void run(const Flags& flags, bool virtual_time) {
  const Case c =
      launched(parse_case(virtual_time ? in_virtual_time(flags.words) : flags.words), "run");
  if (reports()) check_places(flags);

  const Peak peak = reports() ? peak_of(c) : Peak{};
  const Measured measured = measure_until_interrupted(c, flags);
  if (!reports()) return;

  const StepShape shape{c.model, c.mesh, c.options};
  const StepWork work{.tokens = static_cast<double>(c.global_batch * c.model.sequence),
                      .model_flops = model_flops(c.model, c.global_batch, FlopConvention::megatron),
                      .recomputed_flops = recomputed_flops(measured.plan),
                      .devices = peak.devices,
                      .peak_flops_per_s = peak.flops_per_s,
                      .no_peak_reason = peak.source};
  RunReport report = report_run(measured.plan, shape, measured.results, work);
  report.metrics.push_back(own_cores_bubble(measured));
  for (Metric& metric : outer_memory(c, measured)) report.metrics.push_back(std::move(metric));
  const Json row = make_row(c, measured, report, peak, flags);
  try {
    write_outputs(flags, measured, row);
  } catch (const Error& error) {
    throw Exit(kExitNoData, error.what());
  }
  if (!flags.json && flags.out != "-") {
    fmt::print("{}", run_text(c, measured, report, peak, flags.quiet));
    if (c.mode == Mode::sim)
      fmt::print("{}{}", prediction_text(c, measured), variation_text(c, *measured.variation));
    if (const auto objection = memory_objection(c, measured))
      fmt::print("\nDoes not fit: {}.\n", *objection);
  }
  if (measured.interrupted) throw Exit(kExitInterrupted, *measured.interrupted);
  if (measured.verification && !measured.verification->ok) {
    throw Exit(kExitNoVerdict, cat("the first step is not that of one rank: gradient of ",
                                   measured.verification->gradient.tensor, " off by ",
                                   measured.verification->gradient.relative, ", loss by ",
                                   measured.verification->loss_error, ", norm by ",
                                   measured.verification->norm_error, " (relative; tolerance ",
                                   measured.verification->tolerance, ")"));
  }
}

Verb step_verb(const char* name, const char* help, const char* footer, bool virtual_time) {
  auto flags = std::make_shared<Flags>();
  return {.name = name,
          .help = help,
          .arguments = {case_words(flags->words),
                        {"-o,--out", &flags->out,
                         "Write the result row, one JSON object, to this file; - is stdout"},
                        {"--trace", &flags->trace,
                         "Write the last step as a Chrome trace, for ui.perfetto.dev"},
                        {"--timeline", &flags->timeline,
                         "Write the last step's timeline, one span a line"},
                        {"--json", &flags->json, "Print the row and nothing else on stdout"},
                        {"-q,--quiet", &flags->quiet, "Print the summary alone"},
                        {"--no-progress", &flags->no_progress, "No progress line on stderr"}},
          .footer = footer,
          .run = [flags, virtual_time] { run(*flags, virtual_time); }};
}

}  // namespace

Verb run_verb() {
  return step_verb(
      "run", "Train for some steps, measure them, hold the numbers against theory",
      "Examples:\n  meshbench run case=first\n  meshbench run model=gpt-1m mesh=pp2.tp2 "
      "micro_batch=1 global_batch=8 -o row.json --trace trace.json\n"
      "  meshbench run model=gpt-1m data=README.md mesh=dp2 steps=20 --json",
      false);
}

Verb sim_verb() {
  return step_verb(
      "sim",
      "The same step in virtual time on a machine that one does not have (run with mode=sim)",
      "Examples:\n  meshbench sim case=textbook-100b\n  meshbench sim model=gpt3-13b "
      "mesh=dp2.pp4.tp8 machine=h100x8 micro_batch=1 global_batch=64 machine.nic_gb_per_s=25",
      true);
}

}  // namespace mb
