#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "bench/analysis/traffic.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/report/table.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::vector<std::string> words;
  bool run = false, json = false;
};

// Rows of one pipeline rank, and those whose numbers are the same.
struct StageTraffic {
  std::vector<int> stages;
  std::vector<TrafficRow> rows;
};

bool same(const std::vector<TrafficRow>& a, const std::vector<TrafficRow>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const TrafficRow& x, const TrafficRow& y) {
        return x.key == y.key && x.numbers.closed_form == y.numbers.closed_form &&
               x.numbers.plan == y.numbers.plan && x.numbers.counted == y.numbers.counted &&
               x.numbers.equal == y.numbers.equal;
      });
}

std::vector<StageTraffic> distinct_stages(const std::vector<TrafficRow>& report, int stages) {
  std::vector<StageTraffic> distinct;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<TrafficRow> rows;
    for (const TrafficRow& row : report) {
      if (row.stage == stage) rows.push_back(row);
    }
    const auto known = std::find_if(distinct.begin(), distinct.end(),
                                    [&](const StageTraffic& s) { return same(s.rows, rows); });
    if (known == distinct.end()) {
      distinct.push_back({{stage}, std::move(rows)});
    } else {
      known->stages.push_back(stage);
    }
  }
  return distinct;
}

// "0", "1-3, 5"
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += cat(text.empty() ? "" : ", ", numbers[i]);
    if (end > i + 1) text += cat('-', numbers[end - 1]);
    i = end;
  }
  return text;
}

// "layers 0-3, 12-15, embedding"
std::string contents(const Case& c, int rank) {
  const PipelineShape shape = pipeline_shape(c.mesh, c.options);
  const std::vector<int> layout = stage_layers(c.model, c.mesh, c.options);
  std::vector<int> layers;
  bool embedding = false, head = false;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int stage = stage_of(placement_of(c.options), rank, chunk, shape.ranks);
    int first = 0;
    for (int before = 0; before < stage; ++before) first += layout[before];
    for (int layer = first; layer < first + layout[stage]; ++layer) layers.push_back(layer);
    embedding = embedding || stage == 0;
    head = head || stage + 1 == shape.ranks * shape.chunks;
  }
  std::string text;
  const auto add = [&](const std::string& part) { text += cat(text.empty() ? "" : ", ", part); };
  if (embedding) add("embedding");
  if (!layers.empty()) add(cat(layers.size() > 1 ? "layers " : "layer ", ranges(layers)));
  if (head) add("head");
  return text;
}

std::string size(double bytes) { return format_bytes(bytes); }

// Cells of one kind of number: of the closed form, the plan and, where there is one, the count.
template <class Format>
void add_cells(std::vector<std::string>& cells, const TrafficNumbers& numbers,
               std::int64_t CommCount::*field, bool counted, Format format) {
  cells.push_back(format(numbers.closed_form.*field));
  cells.push_back(format(numbers.plan.*field));
  if (counted) cells.push_back(format((*numbers.counted).*field));
}

std::string verdict(bool equal) { return equal ? "yes" : "DIFFERS"; }

int partners(const Mesh& mesh, const TrafficKey& key) {
  return key.kind ? mesh.group_size(key.group) : 2;
}

std::string table_of(const Case& c, const StageTraffic& stage, bool counted) {
  std::vector<Column> columns = {
      {"axis", Align::left}, {"site", Align::left}, {"kind", Align::left}, {"ranks"}};
  for (const char* what : {"calls", "elements", "bytes"}) {
    columns.push_back({cat(what, ": closed form")});
    columns.push_back({"plan"});
    if (counted) columns.push_back({"counted"});
  }
  columns.push_back({"wire bytes"});
  columns.push_back({"equal", Align::left});
  Table table(columns);

  const auto add = [&](std::vector<std::string> cells, const TrafficNumbers& numbers, double wire) {
    const auto exact = [](std::int64_t n) { return cat(n); };
    add_cells(cells, numbers, &CommCount::calls, counted, exact);
    add_cells(cells, numbers, &CommCount::elements, counted, exact);
    add_cells(cells, numbers, &CommCount::bytes, counted,
              [](std::int64_t n) { return size(static_cast<double>(n)); });
    cells.push_back(size(wire));
    cells.push_back(verdict(numbers.equal));
    table.add(std::move(cells));
  };
  const std::vector<AxisTraffic> axes = by_axis(stage.rows);
  auto row = stage.rows.begin();
  for (const AxisTraffic& axis : axes) {
    const std::string name = name_of(axis.group), ranks = cat(partners(c.mesh, row->key));
    double wire = 0;
    int rows = 0;
    for (; row != stage.rows.end() && row->key.group == axis.group; ++row, ++rows) {
      const double own = wire_bytes(c.mesh, row->key, row->numbers.closed_form.bytes);
      wire += own;
      add({name, std::string(name_of(row->key.site)), std::string(kind_name(row->key)), ranks},
          row->numbers, own);
    }
    if (rows > 1) add({name, "= all", "", ranks}, axis.numbers, wire);
  }
  return table.to_text();
}

// What ZeRO makes of the traffic of plain data parallelism; nullopt without it.
struct BesidePlain {
  double wire = 0, plain = 0;
};
std::optional<BesidePlain> beside_plain(const StepShape& shape, int stage) {
  if (shape.options.zero == 0) return std::nullopt;
  StepShape plain = shape;
  plain.options.zero = 0;
  const BesidePlain both{data_wire_bytes(shape.mesh, ledger(shape, stage)),
                         data_wire_bytes(shape.mesh, ledger(plain, stage))};
  return both.plain > 0 ? std::optional(both) : std::nullopt;
}

std::string why(const StepOptions& options) {
  if (options.zero < 2) return "";
  const bool gathers = options.zero == 3 && options.reshard;
  return cat(
      "; each of ", options.micro_batches, " micro-batches ",
      gathers ? "gathers parameters for every pass and reduces by itself" : "reduces by itself");
}

Json json_of(const CommCount& count) {
  return {{"calls", count.calls}, {"elements", count.elements}, {"bytes", count.bytes}};
}

Json json_of(const Case& c, const StepShape& shape, const std::vector<StageTraffic>& stages,
             bool equal) {
  Json json{{"case", to_text(c)}, {"equal", equal}};
  for (const StageTraffic& stage : stages) {
    Json entry{{"stages", stage.stages}, {"holds", contents(c, stage.stages.front())}};
    for (const TrafficRow& row : stage.rows) {
      const TrafficNumbers& n = row.numbers;
      entry["traffic"].push_back({{"axis", name_of(row.key.group)},
                                  {"site", name_of(row.key.site)},
                                  {"kind", kind_name(row.key)},
                                  {"ranks", partners(c.mesh, row.key)},
                                  {"closed_form", json_of(n.closed_form)},
                                  {"plan", json_of(n.plan)},
                                  {"counted", n.counted ? json_of(*n.counted) : Json(nullptr)},
                                  {"wire_bytes", wire_bytes(c.mesh, row.key, n.closed_form.bytes)},
                                  {"equal", n.equal}});
    }
    if (const auto both = beside_plain(shape, stage.stages.front())) {
      entry["data_wire_bytes"] = both->wire;
      entry["data_wire_bytes_without_zero"] = both->plain;
    }
    json["pipeline_ranks"].push_back(std::move(entry));
  }
  return json;
}

void print(const Case& c, const StepShape& shape, const std::vector<StageTraffic>& stages,
           bool counted) {
  fmt::print(
      "{}\n\nWhat one rank sends and reduces in a step: the closed form, the instructions of its "
      "plan{}.\nElements and bytes are of full vectors; wire bytes are what the rank sends if "
      "rings carry them.\n",
      to_text(c), counted ? ", what its communicators counted" : "");
  for (const StageTraffic& stage : stages) {
    const int first = stage.stages.front();
    const bool several = stage.stages.size() > 1;
    fmt::print("\nPipeline rank{} {} of {}{}: {}\n", several ? "s" : "", ranges(stage.stages),
               shape.stages(), several ? cat(", alike; rank ", first) : "", contents(c, first));
    if (stage.rows.empty()) {
      fmt::print("  nothing, there is no other rank\n");
      continue;
    }
    fmt::print("{}", table_of(c, stage, counted));
    if (const auto both = beside_plain(shape, first)) {
      fmt::print(
          "Gradients and parameters over data ranks: {} on the wire, {:.2f} times the {} of plain "
          "data parallelism{}.\n",
          size(both->wire), both->wire / both->plain, size(both->plain), why(c.options));
    }
  }
}

void show(const Flags& flags) {
  const Case c = parse_case(flags.words);
  const StepShape shape{c.model, c.mesh, c.options};
  const Measured measured =
      flags.run ? measure_one_step(c) : Measured{.plan = plan_step(c.model, c.mesh, c.options)};
  const std::vector<TrafficRow> report =
      traffic_report(measured.plan, shape, measured.results.traffic);
  const std::vector<StageTraffic> stages = distinct_stages(report, shape.stages());
  const auto wrong = std::find_if(report.begin(), report.end(),
                                  [](const TrafficRow& row) { return !row.numbers.equal; });
  if (flags.json) {
    fmt::print("{}\n", json_of(c, shape, stages, wrong == report.end()).dump(2));
  } else {
    print(c, shape, stages, flags.run);
  }
  if (wrong == report.end()) return;
  throw Exit(kExitNoVerdict, cat("closed form, plan and count differ first on rank ", wrong->rank,
                                 ": ", name_of(wrong->key.group), ", ", name_of(wrong->key.site),
                                 ", ", kind_name(wrong->key)));
}

}  // namespace

Verb traffic_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "traffic",
      .help = "What a rank sends and reduces in a step, by axis and site: closed form and plan",
      .arguments = {case_words(flags->words),
                    {"--run", &flags->run,
                     "Run one step on threads and show what they counted, too"},
                    {"--json", &flags->json, "Print one JSON document"}},
      .footer =
          "Examples:\n  meshbench traffic model=gpt-1m mesh=dp2.tp2 zero=3 sequence_parallel=on "
          "--run\n"
          "  meshbench traffic model=gpt3-175b mesh=pp8.tp8 mode=sim schedule=interleaved chunks=3 "
          "global_batch=64",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
