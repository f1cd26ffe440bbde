#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/text.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::optional<int> rank;
  bool json = false;
};

nlohmann::ordered_json json_of(const Plan& plan, const Case& c) {
  nlohmann::ordered_json json{{"case", to_text(c)}, {"world", plan.mesh.world()}};
  for (const Program& program : plan.programs) {
    const MemoryPeak peak = memory_peak(program);
    json["stages"].push_back({{"stage", program.stage},
                              {"schedule", to_text(program.slots)},
                              {"instructions", program.instructions.size()},
                              {"peak_bytes", peak.total_bytes},
                              {"arena_bytes", program.arena_bytes}});
  }
  return json;
}

void show(const Flags& flags) {
  const Case c = parse_case(flags.words);
  const int world = c.mesh.world();
  require(!flags.rank || (*flags.rank >= 0 && *flags.rank < world), "--rank ",
          flags.rank.value_or(0), ": mesh=", c.mesh.to_text(), " has ranks 0 to ", world - 1);
  const Plan plan = plan_step(c.model, c.mesh, c.options);
  validate(plan);
  if (flags.json) {
    fmt::print("{}\n", json_of(plan, c).dump(2));
    return;
  }
  if (flags.rank) {
    const Coordinates at = plan.mesh.coordinates(*flags.rank);
    fmt::print(
        "# rank {}: stage {}, dp {}, tp {}. Columns: id, stream, label (pass and micro-batch, "
        "layer, site), action, reads -> writes, waits\n",
        *flags.rank, at[static_cast<int>(Axis::pp)], at[static_cast<int>(Axis::dp)],
        at[static_cast<int>(Axis::tp)]);
    fmt::print("{}", program_text(plan, plan.program_of(*flags.rank)));
    return;
  }
  fmt::print(
      "# {}\n# {} ranks, {} micro-batches of {} on each data rank. F3 is the forward of "
      "micro-batch "
      "3, B3 its backward; I3 and W3 are its halves, F3.1 is of the rank's second chunk.\n\n{}\n",
      to_text(c), world, c.options.micro_batches, c.options.micro_batch, schedule_text(plan));
  for (const Program& program : plan.programs) {
    const MemoryPeak peak = memory_peak(program);
    fmt::print("# stage {}: {} instructions, peak memory {} (reserved {})\n", program.stage,
               program.instructions.size(), format_bytes(static_cast<double>(peak.total_bytes)),
               format_bytes(static_cast<double>(program.arena_bytes)));
  }
  fmt::print(
      "# --rank R lists the instructions of a rank; schedule=@FILE reads what stands here.\n");
}

}  // namespace

Verb plan_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "plan",
      .help =
          "Show the schedule of a case, or with --rank the instructions of a rank; runs nothing",
      .arguments = {case_words(flags->words),
                    {"--rank", &flags->rank, "List this rank's instructions"},
                    {"--json", &flags->json, "Print one JSON document"}},
      .footer =
          "Examples:\n  meshbench plan model=gpt-1m mesh=pp4 global_batch=8\n  meshbench plan "
          "case=first --rank 0",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
