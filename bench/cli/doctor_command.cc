// Whether a node is fit for what one wants to run on it.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "bench/cli/case.h"
#include "bench/cli/commands.h"
#include "bench/cli/key_values.h"
#include "bench/doctor/checks.h"
#include "bench/report/json.h"
#include "bench/report/table.h"
#include "parallel/comm/mpi_library.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  bool json = false;
};

BuiltWith built_with() {
  BuiltWith built{.mpis = built_mpis()};
  if (MB_CUDA_VERSION > 0) built.cuda = MB_CUDA_VERSION;
  if (MB_NCCL_VERSION > 0) built.nccl = MB_NCCL_VERSION;
  std::istringstream architectures(MB_CUDA_ARCHITECTURES);
  for (int number = 0; architectures >> number;) built.architectures.push_back(number);
  return built;
}

// Nothing in particular where none is given.
std::optional<Mode> mode_of(const std::vector<std::string>& words) {
  constexpr std::string_view key = "mode=";
  require(words.size() <= 1, "doctor takes one word, mode=; leave out ",
          words.empty() ? "" : words.back());
  if (words.empty()) return std::nullopt;
  require(words[0].starts_with(key) && words[0].size() > key.size(), "doctor knows no ", words[0],
          "; give mode=, for example mode=nccl+threads");
  return choice<Mode>("mode", words[0].substr(key.size()), modes());
}

Json json_of(const NodeFacts& node, const std::string& mode, const std::vector<Check>& checks,
             std::int64_t failures) {
  Json json = {{"schema", "meshbench-doctor/1"}, {"host", node.host},
               {"kernel", node.kernel},          {"mode", mode.empty() ? Json() : Json(mode)},
               {"would_fail", failures},         {"checks", Json::array()}};
  for (const Check& check : checks)
    json["checks"].push_back({{"check", check.name},
                              {"value", check.value},
                              {"verdict", name_of(check.verdict)},
                              {"advice", check.advice.empty() ? Json() : Json(check.advice)}});
  return json;
}

void print(const NodeFacts& node, const std::string& mode, const std::vector<Check>& checks,
           std::int64_t failures) {
  Table table({{"check", Align::left},
               {"verdict", Align::left},
               {"value", Align::left},
               {"what to do", Align::left}});
  for (const Check& check : checks)
    table.add({check.name, std::string(name_of(check.verdict)), check.value, check.advice});
  const auto notes = std::count_if(checks.begin(), checks.end(),
                                   [](const Check& c) { return c.verdict == Verdict::note; });
  fmt::print("{}, Linux {}\n\n{}\n{} checks, {} notes. ", node.host, node.kernel, table.to_text(),
             checks.size(), notes);
  if (failures > 0) {
    fmt::print("mode={} would fail here: {}\n", mode,
               failures == 1 ? "see the line" : cat("see the ", failures, " lines"));
  } else {
    fmt::print("{}\n", mode.empty() ? "Nothing keeps the modes of this build without GPUs from "
                                      "running; doctor mode=nccl+threads asks for more."
                                    : cat("Nothing here keeps mode=", mode, " from running."));
  }
}

void run(const Flags& flags) {
  const std::optional<Mode> given = mode_of(flags.words);
  const std::string mode(given ? name_of(*given) : "");
  Asked asked;
  if (given) asked = {on_mpi(*given), on_cuda(*given), on_nccl(*given)};
  const NodeFacts node = read_node();
  const std::vector<Check> checks = diagnose(node, read_gpus(), built_with(), asked);
  const auto failures = std::count_if(checks.begin(), checks.end(), [](const Check& c) {
    return c.verdict == Verdict::would_fail;
  });
  if (flags.json) {
    fmt::print("{}\n", json_of(node, mode, checks, failures).dump(2));
  } else {
    print(node, mode, checks, failures);
  }
  if (failures > 0)
    throw Exit(kExitWouldFail, cat("mode=", mode, " would fail on this node; ", failures,
                                   failures == 1 ? " check says" : " checks say", " why"));
}

}  // namespace

Verb doctor_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "doctor",
      .help = "Check this node, cores to GPUs, and say what would go wrong and what to do",
      .arguments =
          {{.name = "mode",
            .into = &flags->words,
            .help =
                "mode= as 'meshbench run' takes it: what the node is to be fit for; exits with 1 "
                "where that would fail",
            .type = "mode=..."},
           {"--json", &flags->json, "Print one JSON document"}},
      .footer =
          "Examples:\n  meshbench doctor\n  meshbench doctor mode=threads --json\n"
          "\n'meshbench doctor mode=nccl+threads' on a node of GPUs checks that too.",
      .run = [flags] { run(*flags); }};
}

}  // namespace mb
