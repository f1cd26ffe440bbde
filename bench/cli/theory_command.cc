#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/analysis/bubble_form.h"
#include "bench/analysis/ledger.h"
#include "bench/analysis/memory_form.h"
#include "bench/analysis/state_form.h"
#include "bench/cli/commands.h"
#include "bench/cli/memory_text.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  bool json = false;
};

nlohmann::ordered_json json_of(const Case& c, const StepShape& shape) {
  nlohmann::ordered_json json{
      {"case", to_text(c)},
      {"parameters", parameter_count(c.model)},
      {"tokens_per_step", c.global_batch * c.model.sequence},
      {"model_flops_megatron", model_flops(c.model, c.global_batch, FlopConvention::megatron)},
      {"model_flops_palm", model_flops(c.model, c.global_batch, FlopConvention::palm)}};
  json["bubble_source"] = bubble_source(c.options);
  if (const auto bubble = bubble_form(c.mesh, c.options)) {
    json["bubble_fraction"] = bubble->of_window();
    json["bubble_over_ideal"] = bubble->of_ideal();
  }
  for (int stage = 0; stage < shape.stages(); ++stage) {
    nlohmann::ordered_json row{{"stage", stage},
                               {"local_parameters", local_parameters(shape, stage)}};
    const MemoryForm memory = memory_form(shape, stage);
    for (int m = 0; m < kMemoryClasses; ++m) {
      if (memory.classes[m].bytes)
        row["bytes"][std::string(name_of(static_cast<MemoryClass>(m)))] = *memory.classes[m].bytes;
    }
    row["bytes"]["host"] = *memory.host.bytes;
    for (const auto& [key, count] : ledger(shape, stage)) {
      row["traffic"].push_back({{"axis", name_of(key.group)},
                                {"site", name_of(key.site)},
                                {"kind", kind_name(key)},
                                {"calls", count.calls},
                                {"elements", count.elements},
                                {"bytes", count.bytes}});
    }
    json["stages"].push_back(row);
  }
  return json;
}

void print_traffic(const StepShape& shape) {
  Table table({{"stage"}, {"axis", Align::left}, {"calls"}, {"elements"}, {"bytes"}});
  for (int stage = 0; stage < shape.stages(); ++stage) {
    std::map<Group, CommCount> axes;
    for (const auto& [key, count] : ledger(shape, stage)) axes[key.group] += count;
    for (const auto& [group, count] : axes)
      table.add({cat(stage), name_of(group), cat(count.calls), cat(count.elements),
                 format_bytes(static_cast<double>(count.bytes))});
  }
  fmt::print(
      "Traffic of one rank in a step, full tensors; 'meshbench traffic' tells what each is for\n{}",
      table.to_text());
}

void print_bubble(const Case& c) {
  if (const auto bubble = bubble_form(c.mesh, c.options))
    fmt::print("pipeline bubble: {:.2f} % of the window, {:.2f} % of the ideal if F=I=W\n",
               100 * bubble->of_window(), 100 * bubble->of_ideal());
  fmt::print("  {}\n", bubble_source(c.options));
}

void show(const Flags& flags) {
  const Case c = parse_case(flags.words);
  const StepShape shape{c.model, c.mesh, c.options};
  if (flags.json) return fmt::print("{}\n", json_of(c, shape).dump(2));
  const double tokens = static_cast<double>(c.global_batch * c.model.sequence);
  fmt::print(
      "{}\n\n{} parameters, {} tokens a step, {} ranks, {} micro-batches on each data rank\n",
      to_text(c), format_count(static_cast<double>(parameter_count(c.model))), format_count(tokens),
      c.mesh.world(), c.options.micro_batches);
  for (const FlopConvention convention : {FlopConvention::megatron, FlopConvention::palm}) {
    fmt::print("model FLOPs of a step: {} ({} convention)\n",
               format_count(model_flops(c.model, c.global_batch, convention)), name_of(convention));
  }
  if (shape.stages() > 1) print_bubble(c);
  fmt::print("\n");
  fmt::print("Memory of one rank by class, closed forms: no messages, no temporaries\n{}\n",
             memory_form_text(shape));
  print_traffic(shape);
}

}  // namespace

Verb theory_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "theory",
      .help = "Closed forms for a case: FLOPs, bubble, memory, traffic; runs nothing",
      .arguments = {case_words(flags->words), {"--json", &flags->json, "Print one JSON document"}},
      .footer =
          "Examples:\n  meshbench theory case=textbook-100b\n  meshbench theory model=gpt-1m "
          "mesh=dp2.pp2.tp2 global_batch=16 --json",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
