// The pipeline schedules: all of them in a table, or the slots of one.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/cli/commands.h"
#include "bench/report/table.h"
#include "parallel/plan/text.h"
#include "parallel/schedule/closed_form.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

struct Flags {
  std::string name;
  std::vector<std::string> words;
  bool json = false;
};

constexpr int kRanks = 4, kMicroBatches = 8;  // that numbers are shown for
constexpr int kMostSlots = 1'000'000;

PipelineShape shown_shape(const Schedule& schedule) {
  return {
      .ranks = kRanks, .chunks = usual_chunks(schedule.placement), .micro_batches = kMicroBatches};
}

// Idle share of the pipeline's time if F=I=W.
std::optional<double> bubble_of(const Schedule& schedule) {
  const auto idle = idle_closed_form(schedule.name, shown_shape(schedule), 1, 1, 1);
  if (!idle) return std::nullopt;
  return *idle / (*idle + 3 * kMicroBatches);
}
// Activations of whole micro-batches, all chunks of rank 0 together.
std::optional<double> live_of(const Schedule& schedule) {
  const PipelineShape shape = shown_shape(schedule);
  const auto chunks = peak_live_chunks(schedule.name, shape, 0);
  if (!chunks) return std::nullopt;
  return static_cast<double>(*chunks) / shape.chunks;
}

nlohmann::ordered_json json_of(const Schedule& schedule) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nullptr;
  };
  const auto form = idle_form(schedule.name);
  return {{"name", schedule.name},
          {"help", schedule.help},
          {"placement", name_of(schedule.placement)},
          {"splits_backward", schedule.splits_backward},
          {"takes", schedule.takes},
          {"bubble_fraction", or_null(bubble_of(schedule))},
          {"live_micro_batches", or_null(live_of(schedule))},
          {"idle", form ? nlohmann::ordered_json(form->formula) : nullptr},
          {"source", form ? nlohmann::ordered_json(form->source) : nullptr}};
}

void list(bool json) {
  if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const Schedule& schedule : schedules()) all.push_back(json_of(schedule));
    return fmt::print("{}\n", all.dump(2));
  }
  Table table({{"schedule", Align::left},
               {"placement", Align::left},
               {"backward", Align::left},
               {"takes", Align::left},
               {"bubble %"},
               {"live"},
               {"", Align::left}});
  for (const Schedule& s : schedules()) {
    const auto bubble = bubble_of(s), live = live_of(s);
    table.add({std::string(s.name), std::string(name_of(s.placement)),
               s.splits_backward ? "I, W" : "whole", std::string(s.takes),
               bubble ? fmt::format("{:.1f}", 100 * *bubble) : "-",
               live ? fmt::format("{:g}", *live) : "-", std::string(s.help)});
  }
  fmt::print(
      "{}\ntakes: p ranks, m micro-batches; bubble: share of the pipeline's time at p={}, m={}, "
      "the fewest chunks\nand equal forward (F), input gradient (I) and weight gradient (W); live: "
      "micro-batches whose activations\nrank 0 keeps. 'meshbench theory' prints the formulas.\n",
      table.to_text(), kRanks, kMicroBatches);
}

// "pp=4 m=8 chunks=2 group=4"
PipelineShape shape_of(const Schedule& schedule, const std::vector<std::string>& words) {
  PipelineShape shape = shown_shape(schedule);
  struct Key {
    std::string_view name;
    int* value;
  };
  const Key keys[] = {{"pp", &shape.ranks},
                      {"m", &shape.micro_batches},
                      {"chunks", &shape.chunks},
                      {"group", &shape.group}};
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    require(equals != std::string::npos, "'", word, "' is not key=value; for example pp=4");
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    const std::int64_t number = parse_integer(value, name);
    require(number >= 1 && number <= kMostSlots, word, ": give a whole number from 1 to ",
            kMostSlots);
    *find_named(keys, name, cat("key '", name, "'"), [](const Key& k) { return k.name; }).value =
        static_cast<int>(number);
  }
  require(1.0 * shape.ranks * shape.chunks * shape.micro_batches <= kMostSlots,
          "pp * chunks * m is above ", kMostSlots, "; give smaller ones");
  return shape;
}

void show(const Flags& flags) {
  if (flags.name.empty()) return list(flags.json);
  const Schedule& schedule = find_schedule(flags.name);
  if (flags.json) return fmt::print("{}\n", json_of(schedule).dump(2));
  const auto slots = slots_of(schedule, shape_of(schedule, flags.words));
  fmt::print("{}", schedule_text(slots, schedule.placement));
}

}  // namespace

Verb schedules_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "schedules",
      .help = "List the pipeline schedules",
      .arguments = {{"name", &flags->name,
                     "Print the slots of this one, in the form that schedule=@FILE reads"},
                    {.name = "shape",
                     .into = &flags->words,
                     .help = fmt::format("pp={} m={} chunks=N group=N", kRanks, kMicroBatches),
                     .type = "key=value ..."},
                    {"--json", &flags->json,
                     "Print what is known of all, or of this one, as JSON"}},
      .footer =
          "Examples:\n  meshbench schedules\n  meshbench schedules zb-v pp=4 m=8 > mine.txt && "
          "meshbench plan model=gpt-1m model.layers=8 mesh=pp4 global_batch=8 schedule=@mine.txt",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
