// What a case takes of a device's memory, by closed form, plan and measurement.
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "bench/analysis/zero_table.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/cli/memory_text.h"
#include "bench/report/row.h"
#include "bench/report/table.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/pages.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string rank;
  bool json = false, run = false, zero_table = false;
};

// What there is for the ranks together, or for each of them.
struct Capacity {
  double bytes = 0;
  bool of_each = true;
  std::string owner;
};
// `devices`: those that ranks of this process ran on.
Capacity capacity_of(const Case& c, const std::vector<CudaFacts>& devices) {
  if (c.mode == Mode::sim)
    return {1e9 * c.machine.memory_gb, true, "one device of " + c.machine.name};
  if (on_cuda(c.mode)) {
    require(!devices.empty(), "mode=", name_of(c.mode),
            ": what these GPUs hold is told once ranks are on them; add --run, or give mode=sim "
            "machine=NAME of such GPUs ('meshbench machines' lists them)");
    const CudaFacts& smallest = *std::min_element(
        devices.begin(), devices.end(),
        [](const CudaFacts& a, const CudaFacts& b) { return a.total_bytes < b.total_bytes; });
    const auto used = static_cast<int>(devices.size());
    const int sharing = on_mpi(c.mode) ? 1 : (c.mesh.world() + used - 1) / used;
    return {static_cast<double>(smallest.total_bytes) / sharing, true,
            cat(sharing > 1 ? cat("each of ", sharing, " ranks on a ") : "one ", smallest.name)};
  }
  return {available_bytes(), false, "this machine, for all ranks"};
}

// Each stage's fullest rank stands for the stage.
double needed_bytes(const Case& c, const Capacity& capacity,
                    const std::vector<MemoryReport>& stages, const MemoryReport& of) {
  if (capacity.of_each) return static_cast<double>(of.total.plan_bytes);
  double sum = 0;
  for (const MemoryReport& stage : stages)
    sum += static_cast<double>(stage.reserved_bytes) * c.mesh.world() /
           static_cast<double>(stages.size());
  return sum;
}

Json json_of(const Case& c, const Capacity& capacity, const std::vector<MemoryReport>& stages,
             const std::vector<MemoryReport>& shown) {
  Json json = {{"case", to_text(c)},
               {"capacity_bytes", static_cast<std::int64_t>(capacity.bytes)},
               {"capacity_of", capacity.owner},
               {"ranks", Json::array()}};
  for (const MemoryReport& report : shown) {
    Json row = to_json(report);
    row["fits"] = needed_bytes(c, capacity, stages, report) <= capacity.bytes;
    json["ranks"].push_back(row);
  }
  return json;
}

std::string stages_text(const Case& c, const Capacity& capacity,
                        const std::vector<MemoryReport>& stages) {
  const bool measured = stages.front().total.measured_bytes.has_value();
  std::vector<Column> columns = {{"stage"}, {"rank"}, {"closed form"}, {"plan"}};
  if (measured) columns.push_back({"measured"});
  columns.insert(columns.end(), {{"reserved"}, {"host"}});
  if (capacity.of_each) columns.insert(columns.end(), {{"of the device"}, {"fits", Align::left}});
  columns.push_back({"peak at", Align::left});
  Table table(columns);
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  for (const MemoryReport& stage : stages) {
    std::vector<std::string> cells = {cat(stage.stage), cat(stage.rank),
                                      bytes(stage.total.closed_form_bytes.value_or(0)),
                                      bytes(stage.total.plan_bytes)};
    if (measured) cells.push_back(bytes(*stage.total.measured_bytes));
    cells.push_back(bytes(stage.reserved_bytes));
    cells.push_back(stage.host.plan_bytes ? bytes(stage.host.plan_bytes) : "-");
    if (capacity.of_each) {
      const double share = needed_bytes(c, capacity, stages, stage) / capacity.bytes;
      cells.push_back(fmt::format("{:.1f} %", 100 * share));
      cells.push_back(share <= 1 ? "yes" : "NO");
    }
    cells.push_back(stage.peak);
    table.add(cells);
  }
  return table.to_text();
}

std::string capacity_text(const Case& c, const Capacity& capacity,
                          const std::vector<MemoryReport>& stages) {
  if (capacity.of_each)
    return fmt::format("Capacity: {} ({}) of {}.", format_bytes(capacity.bytes),
                       format_bytes_decimal(capacity.bytes), capacity.owner);
  const double needed = needed_bytes(c, capacity, stages, stages.front());
  return fmt::format("{} ranks reserve {} together; {} left on this machine{}.", c.mesh.world(),
                     format_bytes(needed), format_bytes(capacity.bytes),
                     needed <= capacity.bytes ? "" : ": they do NOT fit");
}

std::string rank_text(const MemoryReport& report) {
  std::string text =
      fmt::format("\nRank {} (stage {}). ", report.rank, report.stage) + memory_text(report);
  if (report.live.empty()) return text;
  text += fmt::format("At the peak, {}, besides what is always there: ", report.peak);
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, report.live.size()); ++i)
    text += cat(i ? ", " : "", report.live[i].count, " x ", report.live[i].name, " (",
                format_bytes(static_cast<double>(report.live[i].bytes)), ")");
  if (report.live.size() > kShown) text += cat(" and ", report.live.size() - kShown, " more names");
  return text + "\n";
}

void show_case(const Flags& flags) {
  const Case c = parse_case(flags.words);
  const bool all = flags.rank == "all";
  const std::int64_t rank = flags.rank.empty() || all ? -1 : parse_integer(flags.rank, "--rank");
  require(flags.rank.empty() || all || (rank >= 0 && rank < c.mesh.world()), "--rank ", flags.rank,
          ": mesh=", c.mesh.to_text(), " has ranks 0 to ", c.mesh.world() - 1, "; or give all");
  const Plan plan = plan_step(c.model, c.mesh, c.options);
  const Measured run = flags.run ? measure_one_step(c) : Measured{.plan = plan};
  const MeasuredMemory& measured = run.results.memory;
  const StepShape shape{c.model, c.mesh, c.options};
  const Capacity capacity = capacity_of(c, run.cuda);
  const std::vector<MemoryReport> stages = memory_reports(plan, shape, measured);
  std::vector<MemoryReport> shown = stages;
  if (rank >= 0) shown = {memory_of_rank(plan, shape, measured, static_cast<int>(rank))};
  if (flags.json) {
    fmt::print("{}\n", json_of(c, capacity, stages, shown).dump(2));
    return;
  }
  if (flags.rank.empty()) shown = {fullest(stages)};
  fmt::print(
      "{}\n\n{} Closed form: = is exact, ~ without messages, <= a bound; - there is none.\n"
      "Plan: what is live along the instructions of a rank, a line for the ranks of each "
      "stage.\n{}",
      to_text(c), capacity_text(c, capacity, stages), stages_text(c, capacity, stages));
  for (const MemoryReport& report : shown) fmt::print("{}", rank_text(report));
  if (flags.rank.empty() && stages.size() > 1)
    fmt::print("\n--rank R tells of another rank, --rank all of one of each stage.\n");
}

// Words of --zero-table.
struct ZeroTable {
  double parameters = 7.5e9;
  std::string of;
  std::vector<int> groups = {1, 8, 64};
};
ZeroTable parse_zero_table(const std::vector<std::string>& words) {
  ZeroTable table;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "params") {
      table.parameters = parse_count(value, key);
    } else if (key == "model") {
      table.parameters = static_cast<double>(parameter_count(find_model(value)));
      table.of = value + ", ";
    } else if (key == "groups") {
      table.groups.clear();
      std::istringstream parts(value);
      for (std::string part; std::getline(parts, part, ',');) {
        const std::int64_t group = parse_integer(part, "groups");
        require(group > 0 && group <= 1'000'000, "groups=", value,
                ": give numbers of ranks from 1 to 1000000, as in groups=1,8,64");
        table.groups.push_back(static_cast<int>(group));
      }
    } else {
      throw Error(cat("--zero-table knows params=, model= and groups=, not '", word, "'"));
    }
  }
  return table;
}

void show_zero_table(const Flags& flags) {
  const ZeroTable zero = parse_zero_table(flags.words);
  std::vector<Column> columns = {{"bytes per parameter", Align::left}, {"zero"}};
  for (int group : zero.groups) columns.insert(columns.end(), {{cat("B, ", group)}, {"GB"}});
  Table table(columns);
  Json json = {{"parameters", zero.parameters}, {"rows", Json::array()}};
  for (const StateBytes& state : state_conventions()) {
    for (int stage = 0; stage <= 3; ++stage) {
      std::vector<std::string> cells = {stage == 0 ? std::string(state.name) : "", cat(stage)};
      for (int group : zero.groups) {
        const double bytes = zero_bytes(state, stage, group);
        const double gb = bytes * zero.parameters * 1e-9;
        cells.push_back(fmt::format("{:.3f}", bytes));
        cells.push_back(fmt::format("{:.2f}", gb));
        json["rows"].push_back({{"state", state.name},
                                {"zero", stage},
                                {"ranks", group},
                                {"bytes_per_parameter", bytes},
                                {"gb", gb}});
      }
      table.add(cells);
    }
  }
  if (flags.json) return fmt::print("{}\n", json.dump(2));
  fmt::print(
      "Model state of one rank: {}{:.4g} billion parameters, AdamW, by ZeRO stage and number of "
      "data ranks "
      "(1 GB is 1e9 bytes).\nParameters + gradients + optimizer state; no activations, padding or "
      "buffers. Rajbhandari et al., ZeRO, 2020, figure 1.\n{}",
      zero.of, 1e-9 * zero.parameters, table.to_text());
  for (const StateBytes& state : state_conventions())
    fmt::print("{}: {}\n", state.name, state.help);
}

}  // namespace

Verb memory_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "memory",
      .help = "Memory of a case by class: closed form, plan and, with --run, what one step counts",
      .arguments =
          {case_words(flags->words),
           {"--rank", &flags->rank, "Tell of this rank, or of one of each stage: R or all"},
           {"--run", &flags->run, "Run one step here and count"},
           {"--zero-table", &flags->zero_table,
            "The ZeRO paper's table instead; takes params=7.5e9 or model=NAME, groups=1,8,64"},
           {"--json", &flags->json, "Print one JSON document"}},
      .footer =
          "Examples:\n  meshbench memory model=gpt3-175b mesh=tp8.pp8 dtype=bf16 micro_batch=1 "
          "global_batch=64 zero=1 recompute=full mode=sim\n  meshbench memory case=first zero=2 "
          "--run\n"
          "  meshbench memory --zero-table model=gpt3-13b groups=1,16,64",
      .run = [flags] { flags->zero_table ? show_zero_table(*flags) : show_case(*flags); }};
}

}  // namespace mb
