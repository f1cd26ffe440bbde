// Whether cases can run, what they need and how long they may take, for whoever runs many of them.
#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include "bench/cli/case_params.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/report/row.h"
#include "parallel/comm/mpi_library.h"
#include "parallel/comm/nccl_world.h"
#include "parallel/device/cuda_device.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/pages.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  bool lines = false;
};

// Round figures of one core of a present server, for an estimate before anything has run.
constexpr double kCoreTflops = 0.05, kCoreGbPerS = 10, kStartSeconds = 0.1;
constexpr double kSimulatedInstructionSeconds = 2e-5;  // planned, simulated and reported

// The cores of this host as a machine, shared by the ranks, with the links of the case.
Machine host_of(const Case& c) {
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  const double share = std::min(1.0, cores / c.mesh.world());
  Machine host{.name = "host", .ranks_per_node = c.mesh.world()};
  host.fp32_tflops = host.bf16_tflops = kCoreTflops * share;
  host.fp64_tflops = host.fp32_tflops / 2;
  host.memory_gb_per_s = kCoreGbPerS * share;
  host.launch_us = 2;
  host.intra = host.inter = host.host = {.latency_us = 10, .gb_per_s = kCoreGbPerS * share};
  if (c.link) {
    host.intra = c.link->intra;
    host.inter = c.link->inter;
  }
  if (c.offload_gb_per_s > 0) host.host.gb_per_s = c.offload_gb_per_s;
  return host;
}

// Of the live modes: all steps, and the first one again on one rank in fp64.
double live_seconds(const Case& c, double step_s) {
  const double flops = model_flops(c.model, c.global_batch, FlopConvention::megatron);
  const double check_s = reason_not_to_verify(c).empty() ? flops / (1e12 * kCoreTflops / 2) : 0;
  return kStartSeconds + (c.warm_up + c.steps) * step_s + check_s;
}

double sim_seconds(const Plan& plan) {
  std::size_t instructions = 0;
  for (const Program& program : plan.programs) instructions += program.instructions.size();
  return kStartSeconds + kSimulatedInstructionSeconds * static_cast<double>(instructions);
}

// What the ranks on this host need together, or on a machine's device the one that needs most.
void add_memory(Json& check, const Case& c, const Plan& plan) {
  double needed = 0, capacity = 1e9 * c.machine.memory_gb;
  if (c.mode == Mode::sim) {
    for (const Program& program : plan.programs)
      needed = std::max(needed, static_cast<double>(memory_peak(program).total_bytes));
  } else if (c.mode == Mode::threads) {
    for (int rank = 0; rank < c.mesh.world(); ++rank)
      needed += static_cast<double>(plan.program_of(rank).arena_bytes);
    capacity = available_bytes();
  }
  const bool known = needed > 0 && capacity > 0;
  check["needed_bytes"] = known ? Json(static_cast<std::int64_t>(needed)) : Json(nullptr);
  check["capacity_bytes"] = known ? Json(static_cast<std::int64_t>(capacity)) : Json(nullptr);
}

Json row_of(const Case& c) {
  const Plan plan = plan_step(c.model, c.mesh, c.options);
  validate(plan);
  const auto cost = make_roofline_cost(plan, c.mode == Mode::sim ? c.machine : host_of(c), c.stack);
  const Span window = simulate(plan, *cost, c.imbalance).window();
  const double step_s = 1e-9 * static_cast<double>(window.end_ns - window.start_ns);

  Json row = row_head(head_of(c));
  row["suite"] = "check";
  Json check{{"model", Json::parse(to_json(c.model))},
             {"machine", c.mode == Mode::sim ? Json::parse(to_json(c.machine)) : Json(nullptr)},
             {"ranks", c.mesh.world()},
             {"step_s", step_s},
             {"run_s", c.mode == Mode::sim ? sim_seconds(plan) : live_seconds(c, step_s)}};
  add_memory(check, c, plan);
  row["check"] = std::move(check);
  return row;
}

// A row of a case that cannot run: its parameters are its words.
Json refused(const std::vector<std::string>& words, const std::string& status,
             const std::string& phase, const std::string& message) {
  RowHead head{.suite = "check"};
  for (const std::string& text : words) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals),
                      value = equals == std::string::npos ? "" : text.substr(equals + 1);
    head.params[key] = value;
    head.case_line += cat(head.case_line.empty() ? "" : " ", quoted(key, value));
  }
  Json row = row_head(head);
  set_status(row, status, {{"message", message}, {"phase", phase}});
  return row;
}

// Why this build or machine cannot do what the case asks for.
std::optional<std::string> unsupported(const Case& c) {
  const std::string mode = cat("mode=", name_of(c.mode), ": ");
  if (on_mpi(c.mode) && built_mpis().empty())
    return mode + "this build has found no MPI; install Open MPI or MPICH and build again";
  try {
    if (on_cuda(c.mode)) cuda_devices();
    if (on_nccl(c.mode)) nccl_versions();
  } catch (const Error& error) {
    return mode + error.what();
  }
  return std::nullopt;
}

Json check(const std::vector<std::string>& words) {
  std::string phase = "words";
  try {
    read_case(words);
    phase = "rules";
    const Case c = parse_case(words);
    if (const auto why = unsupported(c)) return refused(words, "unsupported", "mode", *why);
    phase = "plan";
    return row_of(c);
  } catch (const Error& error) {
    return refused(words, "invalid", phase, error.what());
  }
}

void run(const Flags& flags) {
  if (!flags.lines) {
    const Json row = check(flags.words);
    require(row["status"] == "ok", row["status_detail"].value("message", ""));
    fmt::print("{}\n", row.dump(2));
    return;
  }
  require(flags.words.empty(), "check --lines reads cases from stdin; leave out ",
          flags.words.empty() ? "" : flags.words.front());
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}\n", check(split_words(line)).dump());
    std::fflush(stdout);
  }
}

}  // namespace

Verb check_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "check",
      .help =
          "Print a case with every default, what it needs and how long it may take, as JSON; runs "
          "nothing",
      .arguments =
          {case_words(flags->words),
           {"--lines", &flags->lines,
            "Read a case from each line of stdin, print one JSON object for each: status ok, "
            "invalid or unsupported"}},
      .footer =
          "Examples:\n  meshbench check case=first\n"
          "  printf '%s\\n' mesh=dp2 mesh=pp2 mesh=tp3 | meshbench check --lines",
      .run = [flags] { run(*flags); }};
}

}  // namespace mb
