// meshbench fit: a machine and a software stack from measurements.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "bench/analysis/stats.h"
#include "bench/cli/commands.h"
#include "bench/cli/fit_text.h"
#include "bench/cli/outputs.h"
#include "bench/fit/input.h"
#include "bench/report/output.h"
#include "parallel/exec/predict.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string machine, stack, report, width_case;
};

// Traces of whole clusters stay below this; more is not what is meant.
constexpr std::size_t kMostBytes = std::size_t{2} << 30;

std::string content_of(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw Exit(kExitNoData, cat(path, " is a folder; give its files: ", path, "/*"));
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  if (path != "-" && !file) throw Exit(kExitNoData, cat(path, " cannot be read"));
  std::istream& in = path == "-" ? std::cin : file;
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (text.size() > kMostBytes) throw Exit(kExitNoData, cat(path, " has more than 2 GiB"));
  return text;
}

// A measured case in virtual time: without what is said of the ranks that ran it.
std::vector<std::string> sim_words(std::string_view line, const std::vector<std::string>& base) {
  static const std::vector<std::string_view> of_ranks = {
      "mode",      "link",   "nodes", "data",    "graph",
      "profile",   "verify", "steps", "warm_up", "offload_gb_per_s",
      "timeout_s", "seed",   "stack", "machine"};
  std::vector<std::string> words = base;
  for (const std::string& word : split_words(line)) {
    const std::string key = split_word(word).key;
    if (key == "ranks_per_node") {
      words.push_back("machine." + word);
    } else if (std::find(of_ranks.begin(), of_ranks.end(), key) == of_ranks.end() &&
               !key.starts_with("machine.") && !key.starts_with("stack.")) {
      words.push_back(word);
    }
  }
  words.push_back("mode=sim");
  return words;
}

MeasuredStep measured_step(const StepTime& step, const std::vector<std::string>& base) {
  try {
    const Case c = parse_case(sim_words(step.case_line, base));
    return {c.model, c.mesh, c.options, step.seconds, step.source};
  } catch (const Error& error) {
    throw Error(cat(step.where, ": ", error.what()));
  }
}

// The median over traces of a host that was seen to launch.
void take_host(const FitRows& rows, Stack& stack, FitReport& report) {
  std::vector<double> us;
  int launches = 0;
  for (const TraceFacts& trace : rows.traces) {
    if (!trace.launch_us && trace.launches > 0)
      report.notes.push_back(cat(trace.source, ": ", trace.launches,
                                 " launches one after the other; host_us takes 50"));
    if (!trace.launch_us) continue;
    us.push_back(*trace.launch_us);
    launches += trace.launches;
  }
  if (us.empty()) return;
  stack.host_us = median(us);
  report.host_source =
      cat(launches, " launches of ", us.size(), us.size() == 1 ? " trace" : " traces");
  stack.source = cat("host_us from ", report.host_source);
}

// The mean over own traces of what passes between instructions.
void take_gaps(const FitRows& rows, Machine& machine) {
  const auto take = [&](double& us, int TraceFacts::*count, std::optional<double> TraceFacts::*mean,
                        const char* name, const char* what) {
    constexpr int kLeast = 20;
    double sum = 0;
    int gaps = 0, traces = 0;
    for (const TraceFacts& trace : rows.traces) {
      if (!trace.own || !(trace.*mean)) continue;
      sum += trace.*count * *(trace.*mean);
      gaps += trace.*count;
      ++traces;
    }
    if (gaps < kLeast) return;
    us = sum / gaps;
    machine.measured.sources[name] =
        cat(gaps, ' ', what, " in ", traces, traces == 1 ? " trace" : " traces");
  };
  take(machine.gap_us, &TraceFacts::gaps, &TraceFacts::gap_us, "gap_us",
       "instructions that follow");
  take(machine.handoff_us, &TraceFacts::handoffs, &TraceFacts::handoff_us, "handoff_us",
       "waits between streams");
}

KnownErrors errors_of(const FitReport& report) {
  KnownErrors known;
  for (const FittedCurve& c : report.collectives.curves)
    known.curves[group_name(c.curve.kind, c.curve.ranks, c.curve.nodes)] = c.held_out;
  if (report.collectives.nic) known.nic = report.collectives.nic->held_out;
  if (report.operations.matmul) known.matmul = report.operations.matmul->held_out;
  for (const TraceFacts& trace : report.traces)
    known.operations = std::max(known.operations, trace.jitter.value_or(0));
  known.host = !report.host_source.empty();
  return known;
}

void add_width(const std::string& line, const std::vector<std::string>& base,
               const Machine& machine, const Stack& stack, FitReport& report) {
  Case c = parse_case(sim_words(line, base));
  c.options.micro_batches = rounds_of(c.mesh, c.options).walked;
  report.width_case = line;
  report.width = width_of(plan_step(c.model, c.mesh, c.options), machine, stack, errors_of(report));
}

void check_found(const FitReport& report, const Flags& flags) {
  if (report.found_for_machine() || report.found_for_stack()) return;
  std::string why;
  for (const auto* list : {&report.collectives.refused, &report.operations.refused,
                           &report.steps.refused, &report.notes})
    for (const std::string& reason : *list) why += "\n  " + reason;
  throw Exit(kExitNoVerdict, cat("nothing could be fitted from ", flags.words.size(), " inputs",
                                 why.empty() ? "" : ":", why));
}

void run(const Flags& flags) {
  check_outputs(
      {{"--out", flags.machine}, {"--stack-out", flags.stack}, {"--report", flags.report}},
      "--report");
  FitRows rows;
  std::vector<std::string> words, paths;
  for (const std::string& word : flags.words) {
    const bool is_key = word.starts_with("machine=") || word.starts_with("machine.") ||
                        word.starts_with("stack=") || word.starts_with("stack.");
    (is_key ? words : paths).push_back(word);
  }
  require(!paths.empty(), "give at least one file of measurements");
  for (const std::string& path : paths) {
    try {
      read_measurements(content_of(path), path, rows);
    } catch (const Error& error) {
      throw Exit(kExitNoData, error.what());
    }
  }
  std::vector<std::string> base = words;
  base.push_back("mode=sim");
  const Case c = read_case(base);
  Machine machine = c.machine;
  Stack stack = c.stack;
  FitReport report{.traces = rows.traces, .notes = rows.notes};
  if (!rows.collectives.empty()) report.collectives = fit_collectives(rows.collectives, machine);
  report.operations = fit_operations(rows.operations, machine);
  report.measured_comm = fit_comm_times(rows.comm, machine);
  take_host(rows, stack, report);
  take_gaps(rows, machine);
  std::vector<MeasuredStep> steps;
  for (const StepTime& step : rows.steps) steps.push_back(measured_step(step, words));
  report.steps = fit_steps(steps, machine, stack);
  check_found(report, flags);
  if (report.found_for_machine()) machine.name = cat("fitted-", machine.name);
  if (report.found_for_stack()) stack.name = cat("fitted-", stack.name);
  const std::string width_case = !flags.width_case.empty() ? flags.width_case
                                 : !rows.steps.empty()     ? rows.steps.front().case_line
                                                           : "";
  if (!width_case.empty()) add_width(width_case, words, machine, stack, report);
  if (!flags.machine.empty())
    write_whole(flags.machine, [&](std::ostream& out) { out << to_json(machine) << '\n'; });
  if (!flags.stack.empty())
    write_whole(flags.stack, [&](std::ostream& out) { out << to_json(stack) << '\n'; });
  if (flags.report == "-") return fmt::print("{}\n", to_json(report, machine, stack).dump(2));
  if (!flags.report.empty()) write_json(flags.report, to_json(report, machine, stack));
  fmt::print("{}", to_text(report, machine, stack));
}

}  // namespace

Verb fit_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "fit",
      .help = "A machine and a software stack from measurements, for machine=@FILE and stack=@FILE",
      .arguments =
          {{.name = "inputs",
            .into = &flags->words,
            .help =
                "Files, known by their content, and machine=, stack= and their fields to start "
                "from:\n"
                "  nccl-tests' output, with its header: a curve for each collective, ranks and "
                "nodes\n"
                "  rows of 'meshbench coll -o': the same\n"
                "  'meshbench run --trace': the time of each of its operations, collectives and "
                "messages\n"
                "  a table m,n,k,dtype,time_us or op,us, or ops_bench --benchmark_out=FILE: "
                "the same, and\n"
                "    efficiencies of other matmuls\n"
                "  PyTorch's trace of a step: how fast the host launches, gaps, jitter\n"
                "  rows of 'meshbench run -o', or a table case,step_s: constants of the stack",
            .type = "FILE | machine=NAME ...",
            .required = true},
           {"-o,--out", &flags->machine, "Write the machine"},
           {"--stack-out", &flags->stack, "Write the stack"},
           {"--report", &flags->report,
            "Write what was found as JSON: constants with their rows and errors; - is stdout"},
           {"--for", &flags->width_case,
            "A case in quotes, of which to say where the width of its prediction comes from; "
            "default: the first measured step"}},
      .footer =
          "A curve takes 4 sizes; NICs 6 rows between nodes; one, two or three constants of a "
          "stack 3, 6 or 9 steps.\n\nExamples:\n"
          "  meshbench fit all_reduce.log all_gather_2nodes.log machine=h100x8 -o here.json\n"
          "  meshbench fit steps.csv machine=@here.json stack=megatron-2022 --stack-out ours.json\n"
          "  meshbench sim model=gpt3-13b mesh=tp8.dp2 machine=@here.json stack=@ours.json "
          "dtype=bf16",
      .run = [flags] { run(*flags); }};
}

}  // namespace mb
