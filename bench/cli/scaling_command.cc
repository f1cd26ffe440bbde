#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/explained_case.h"
#include "bench/cli/key_values.h"
#include "bench/cli/outputs.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string gpus = "8..100000", out;
  bool strong = false, json = false;
};

struct Range {
  std::int64_t low = 0, high = 0;
};

Range range_of(const std::string& text) {
  const std::size_t dots = text.find("..");
  require(dots != std::string::npos, "--gpus ", text,
          ": give the first and the last number, e.g. 64..100000");
  const Range range{whole("--gpus", text.substr(0, dots), 1),
                    whole("--gpus", text.substr(dots + 2), 1)};
  require(range.low <= range.high, "--gpus ", text, ": the range ends before it starts");
  require(range.high <= 10'000'000, "--gpus ", text, ": gives at most 10000000");
  return range;
}

// Sizes of the data axis: doubling from the least that has `low` devices to the most that has
// `high`; of those that have to divide `shares`, the nearest below each.
std::vector<std::int64_t> data_sizes(const Range& gpus, std::int64_t devices_each,
                                     std::optional<std::int64_t> shares) {
  const std::int64_t first = (gpus.low + devices_each - 1) / devices_each,
                     last = gpus.high / devices_each;
  std::vector<std::int64_t> targets, sizes;
  for (std::int64_t size = first; size < last; size *= 2) targets.push_back(size);
  targets.push_back(last);
  for (const std::int64_t target : targets) {
    std::int64_t size = target;
    while (shares && size > 1 && *shares % size != 0) --size;
    if (size >= first && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

struct Point {
  std::int64_t devices = 0;
  std::optional<ExplainedCase> explained;
  std::string refused, line;  // why there is none, and the case
};

Mesh with_data_ranks(const Mesh& mesh, std::int64_t size) {
  std::string text;
  for (int a = 0; a < kAxes; ++a) {
    const Axis axis = static_cast<Axis>(a);
    const std::int64_t ranks = axis == Axis::dp ? size : mesh.size(axis);
    text += cat(text.empty() ? "" : ".", name_of(axis), ranks);
  }
  return Mesh::parse(text);
}

// The words of the case on more data ranks.
std::vector<std::string> words_at(const Flags& flags, const Mesh& mesh, std::int64_t batch) {
  std::vector<std::string> words;
  for (const std::string& word : flags.words) {
    if (!word.starts_with("mesh=") && !word.starts_with("global_batch=")) words.push_back(word);
  }
  words.push_back("mesh=" + mesh.to_text());
  words.push_back(cat("global_batch=", batch));
  return in_virtual_time(std::move(words));
}

std::vector<Point> points_of(const Flags& flags) {
  const Case base = parse_case(in_virtual_time(flags.words));
  require(base.nodes.empty(),
          "nodes=: more devices want more nodes; leave it out, or give ranks_per_node=");
  const std::int64_t data = base.mesh.size(Axis::dp), each = base.mesh.world() / data;
  const Range gpus = range_of(flags.gpus);
  require(gpus.high >= each, "--gpus ", flags.gpus, ": mesh=", base.mesh.to_text(), " has ", each,
          " devices for each of its data ranks; give a last number of at least that");
  // Sequences that data ranks, beside those of rdp and ep, divide.
  const std::int64_t shares =
      base.global_batch / base.options.micro_batch / (base.mesh.data_size() / data);
  const std::vector<std::int64_t> sizes =
      data_sizes(gpus, each, flags.strong ? std::optional(shares) : std::nullopt);
  require(!sizes.empty(), "--gpus ", flags.gpus, ": global_batch=", base.global_batch,
          " has micro-batches for at most ", shares * each,
          " devices; give fewer, a larger global_batch=, or leave --strong out");
  std::vector<Point> points;
  for (const std::int64_t size : sizes) {
    Point point{.devices = size * each};
    const Mesh mesh = with_data_ranks(base.mesh, size);
    const std::int64_t batch = flags.strong ? base.global_batch : base.global_batch / data * size;
    const std::vector<std::string> words = words_at(flags, mesh, batch);
    try {
      point.explained = explain_case(parse_case(words));
    } catch (const Error& error) {
      point.refused = error.what();
      for (const std::string& word : words) point.line += (point.line.empty() ? "" : " ") + word;
    }
    points.push_back(std::move(point));
  }
  return points;
}

// Throughput of a device over that of the first point that there is.
double efficiency(const ExplainedCase& e, const ExplainedCase& first) {
  return e.tokens_per_s() / e.c.mesh.world() / (first.tokens_per_s() / first.c.mesh.world());
}

const ExplainedCase* first_of(const std::vector<Point>& points) {
  for (const Point& point : points)
    if (point.explained) return &*point.explained;
  return nullptr;
}

double share(const ExplainedCase& e, std::string_view kind, std::string_view name = "") {
  double seconds = 0;
  for (const ExplainedPart& part : e.step.parts)
    if (part.kind == kind && (name.empty() || part.name == name)) seconds += part.seconds;
  return seconds / e.step_s();
}

std::string text_of(const Flags& flags, const std::vector<Point>& points) {
  const ExplainedCase* first = first_of(points);
  std::string text, refused;
  // Axes that communicate at any of the points, and what else there is.
  std::vector<std::string> axes;
  bool host = false;
  for (const Point& point : points) {
    if (!point.explained) {
      refused += fmt::format("{} devices: {}\n", point.devices, point.refused);
      continue;
    }
    for (const ExplainedPart& part : point.explained->step.parts) {
      host |= part.kind == "host" && part.seconds > 0;
      if (part.kind == "exposed" && std::find(axes.begin(), axes.end(), part.name) == axes.end() &&
          part.seconds > 0.001 * point.explained->step_s())
        axes.push_back(part.name);
    }
  }
  if (!first) throw Error(refused);
  text = fmt::format(
      "{}\n{} scaling over data ranks: {}\n\n", to_text(first->c), flags.strong ? "Strong" : "Weak",
      flags.strong ? "the global batch stays" : "the global batch grows with the devices");
  std::vector<Column> columns = {
      {"devices"}, {"mesh", Align::left}, {"batch"}, {"step"},         {"80 % from"},
      {"to"},      {"tokens/s"},          {"MFU %"}, {"efficiency %"}, {"compute %"}};
  for (const std::string& axis : axes) columns.push_back({axis + " %"});
  columns.push_back({"bubble, waiting %"});
  if (host) columns.push_back({"host %"});
  columns.push_back({"fits", Align::left});
  Table table(columns);
  const auto percent = [](double of) { return fmt::format("{:.1f}", 100 * of); };
  const auto seconds = [](double s) { return format_duration(1e9 * s); };
  for (const Point& point : points) {
    if (!point.explained) continue;
    const ExplainedCase& e = *point.explained;
    std::vector<std::string> cells = {
        cat(point.devices),
        e.c.mesh.to_text(),
        cat(e.c.global_batch),
        seconds(e.step_s()),
        seconds(e.step.prediction.interval.low_s),
        seconds(e.step.prediction.interval.high_s),
        format_count(e.tokens_per_s()),
        percent(e.mfu),
        percent(efficiency(e, *first)),
        percent(share(e, "compute") + share(e, "recompute") + share(e, "optimizer"))};
    for (const std::string& axis : axes) cells.push_back(percent(share(e, "exposed", axis)));
    cells.push_back(percent(share(e, "wait")));
    if (host) cells.push_back(percent(share(e, "host")));
    cells.push_back(e.fits() ? "yes" : "NO");
    table.add(cells);
  }
  text += table.to_text();
  text +=
      "Shares are of the step, along its critical path; efficiency is throughput of a device "
      "over that of the first line.\n";
  const std::vector<std::string>& why = first->step.prediction.interval.extrapolated;
  text += cat("Calibrated on: ", first->c.stack.source, ".\n");
  for (const std::string& reason : why) text += cat("Extrapolated: ", reason, ".\n");
  return text + refused;
}

std::vector<Json> rows_of(const Flags& flags, const std::vector<Point>& points) {
  const ExplainedCase* first = first_of(points);
  std::vector<Json> rows;
  for (const Point& point : points) {
    if (!point.explained) continue;
    Json row = explained_row("scaling", *point.explained);
    row["scaling"] = {{"kind", flags.strong ? "strong" : "weak"},
                      {"efficiency", efficiency(*point.explained, *first)}};
    rows.push_back(std::move(row));
  }
  return rows;
}

void show(const Flags& flags) {
  check_outputs({{"--out", flags.out}}, "");
  const std::vector<Point> points = points_of(flags);
  const std::string text = text_of(flags, points);
  const std::vector<Json> rows = rows_of(flags, points);
  if (!flags.out.empty()) write_rows(flags.out, rows);
  if (!flags.json) return fmt::print("{}", text);
  for (const Json& row : rows) fmt::print("{}", to_line(row));
}

}  // namespace

Verb scaling_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "scaling",
      .help = "The predicted step on more and more devices, by more data ranks",
      .arguments = {case_words(flags->words),
                    {.name = "--gpus",
                     .into = &flags->gpus,
                     .help = "FIRST..LAST devices; between them, data ranks double",
                     .shows_default = true},
                    {"--strong", &flags->strong,
                     "The global batch stays; else it grows with the devices"},
                    {"-o,--out", &flags->out,
                     "Write a row for each number of devices to this file, .jsonl, for 'mb plot "
                     "scaling'"},
                    {"--json", &flags->json,
                     "Print the rows and nothing else on stdout, one a line"}},
      .footer =
          "Examples:\n  meshbench scaling model=llama3-70b mesh=pp4.tp8 machine=h100x8 dtype=bf16 "
          "zero=1 --gpus 64..100000\n  meshbench scaling model=gpt3-175b mesh=pp12.tp8 "
          "machine=h100x8 dtype=bf16 global_batch=1536 --strong --gpus 768..100000 -o rows.jsonl",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
