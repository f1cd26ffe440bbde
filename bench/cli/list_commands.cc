// What is known by name: models, machines, cases.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/cli/commands.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

struct Flags {
  std::string name;
  bool json = false;
};

// "174.6 B": the field counts parameters in billions, not in giga.
std::string parameters_text(const ModelConfig& model) {
  std::string text = format_count(static_cast<double>(parameter_count(model)));
  if (text.back() == 'G') text.back() = 'B';
  return text;
}

// A verb that lists all of a table, or prints one entry as the JSON that NAME=@FILE reads.
template <class Show>
Verb list_verb(const char* name, const char* help, const char* name_help, const char* footer,
               Show show) {
  auto flags = std::make_shared<Flags>();
  return {.name = name,
          .help = help,
          .arguments = {{"name", &flags->name, name_help},
                        {"--json", &flags->json, "Print all as one JSON document"}},
          .footer = footer,
          .run = [flags, show] { show(*flags); }};
}

void show_models(const Flags& flags) {
  if (!flags.name.empty()) return fmt::print("{}\n", to_json(find_model(flags.name)));
  if (flags.json) {
    auto all = nlohmann::ordered_json::array();
    for (const ModelConfig& model : published_models())
      all.push_back(nlohmann::ordered_json::parse(to_json(model)));
    return fmt::print("{}\n", all.dump(2));
  }
  Table table({{"model", Align::left},
               {"arch", Align::left},
               {"parameters"},
               {"layers"},
               {"hidden"},
               {"heads"},
               {"kv heads"},
               {"ffn"},
               {"vocabulary"},
               {"sequence"}});
  for (const ModelConfig& m : published_models()) {
    table.add({m.name, m.arch == Arch::gpt ? "gpt" : "llama", parameters_text(m), cat(m.layers),
               cat(m.hidden), cat(m.heads), cat(m.kv_heads), cat(m.ffn), cat(m.vocabulary),
               cat(m.sequence)});
  }
  fmt::print("{}", table.to_text());
}

void show_machines(const Flags& flags) {
  if (!flags.name.empty()) return fmt::print("{}\n", to_json(find_machine(flags.name)));
  if (flags.json) {
    auto all = nlohmann::ordered_json::array();
    for (const Machine& machine : machines())
      all.push_back(nlohmann::ordered_json::parse(to_json(machine)));
    return fmt::print("{}\n", all.dump(2));
  }
  Table table({{"machine", Align::left},
               {"ranks/node"},
               {"fp32 TFLOP/s"},
               {"bf16 TFLOP/s"},
               {"memory GB"},
               {"memory GB/s"},
               {"link GB/s"},
               {"link us"},
               {"nic GB/s"},
               {"nic us"}});
  for (const Machine& m : machines()) {
    table.add({m.name, cat(m.ranks_per_node), cat(m.fp32_tflops),
               m.bf16_tflops > 0 ? cat(m.bf16_tflops) : "-", cat(m.memory_gb),
               cat(m.memory_gb_per_s), cat(m.intra.gb_per_s), cat(m.intra.latency_us),
               cat(m.inter.gb_per_s), cat(m.inter.latency_us)});
  }
  fmt::print("{}", table.to_text());
}

void show_stacks(const Flags& flags) {
  if (!flags.name.empty()) return fmt::print("{}\n", to_json(find_stack(flags.name)));
  if (flags.json) {
    auto all = nlohmann::ordered_json::array();
    for (const Stack& stack : stacks())
      all.push_back(nlohmann::ordered_json::parse(to_json(stack)));
    return fmt::print("{}\n", all.dump(2));
  }
  Table table({{"stack", Align::left},
               {"attention", Align::left},
               {"matmuls", Align::left},
               {"compute"},
               {"memory"},
               {"host us"},
               {"spread %"},
               {"constants from", Align::left}});
  for (const Stack& s : stacks()) {
    table.add({s.name, s.fused_attention ? "fused" : "unfused", s.fp8_matmul ? "fp8" : "dtype",
               cat(s.compute_share), cat(s.memory_share), cat(s.host_us),
               s.log_sigma > 0 ? fmt::format("{:.1f}", 100 * s.log_sigma) : "-", s.source});
  }
  fmt::print("{}", table.to_text());
}

void show_cases(const Flags& flags) {
  if (flags.json) {
    auto all = nlohmann::ordered_json::array();
    for (const NamedCase& named : named_cases())
      all.push_back({{"name", named.name}, {"case", named.words}, {"help", named.help}});
    return fmt::print("{}\n", all.dump(2));
  }
  for (const NamedCase& named : named_cases()) {
    if (flags.name.empty() || flags.name == named.name)
      fmt::print("case={}\n  {}\n  {}\n", named.name, named.help, named.words);
  }
  if (!flags.name.empty()) parse_case({"case=" + flags.name});  // refuses what is not known
}

}  // namespace

Verb models_verb() {
  return list_verb(
      "models", "List the published models",
      "Print this one as JSON, in the form that model=@FILE.json reads",
      "Examples:\n  meshbench models\n  meshbench models gpt2 > mine.json && meshbench theory "
      "model=@mine.json mesh=dp8",
      show_models);
}

Verb machines_verb() {
  return list_verb(
      "machines", "List the machines of mode=sim",
      "Print this one as JSON, in the form that machine=@FILE.json reads",
      "Examples:\n  meshbench machines\n  meshbench machines h100x8 > mine.json && meshbench "
      "sim machine=@mine.json",
      show_machines);
}

Verb stacks_verb() {
  return list_verb("stacks", "List the software stacks of mode=sim",
                   "Print this one as JSON, in the form that stack=@FILE.json reads",
                   "Examples:\n  meshbench stacks\n  meshbench sim model=gpt3-13b mesh=tp8 "
                   "stack=megatron-2021 stack.host_us=0",
                   show_stacks);
}

Verb cases_verb() {
  return list_verb("cases", "List the named cases", "Print this one alone",
                   "Examples:\n  meshbench cases\n  meshbench sim case=textbook-100b", show_cases);
}

Argument case_words(std::vector<std::string>& words) {
  std::string help =
      "The case, as key=value words:\n  case=NAME: a named case to start from ('meshbench cases' "
      "lists them)\n";
  const Case defaults;
  help += help_of(case_keys(), defaults, "global_batch");
  return {.name = "case", .into = &words, .help = help, .type = "key=value ..."};
}

}  // namespace mb
