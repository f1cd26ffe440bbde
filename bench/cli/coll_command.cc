// meshbench coll: times collectives on the process groups of a mesh.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/cli/coll_case.h"
#include "bench/cli/commands.h"
#include "bench/cli/fit_text.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/outputs.h"
#include "bench/cli/ranks.h"
#include "bench/coll/needs.h"
#include "bench/coll/row.h"
#include "bench/coll/runner.h"
#include "bench/coll/text.h"
#include "bench/coll/tuning.h"
#include "bench/fit/coll_times.h"
#include "bench/report/fingerprint.h"
#include "bench/report/output.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string out, csv, fit, tune;
  bool json = false, explain = false, matrix = false, raw = false;
};

// Measures points, or in mode=sim predicts them.
class Source {
 public:
  Source(const CollCase& c, const std::vector<Point>& points) : case_(c) {
    if (c.mode == Mode::sim) return;
    try {
      world_.emplace(c.mode, c.mesh, c.link, c.timeout_s);
      runner_ = std::make_unique<CollRunner>(**world_, c, points, &Interrupts::interrupted,
                                             devices_of(c.mode, c.mesh));
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      throw Exit(kExitNoVerdict, error.what());
    }
  }

  // What it was at when it threw.
  const std::optional<Point>& at() const { return at_; }

  bool prints() { return !world_ || (**world_).local_ranks().front() == 0; }
  std::optional<PointResult> next(const Point& point) {
    if (!runner_) return predict(case_, point, case_.machine);
    at_ = point;
    try {
      return runner_->measure(point);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      throw Exit(kExitNoVerdict, error.what());
    }
  }
  CoreShare core_share() const { return runner_ ? runner_->core_share() : CoreShare{}; }
  bool was_interrupted() const { return runner_ && runner_->was_interrupted(); }

 private:
  const CollCase& case_;
  std::optional<CaseWorld> world_;
  std::unique_ptr<CollRunner> runner_;
  std::optional<Point> at_;
};

// Where results go: files, stdout, and what is told at the end.
class Sink {
 public:
  Sink(const CollCase& c, const Flags& flags, const Surroundings& around)
      : case_(c), flags_(flags), around_(around), json_(flags.json || flags.out == "-") {
    head_ = {.suite = "coll", .case_line = to_text(c), .seed = c.seed};
    for (const CollKey& key : coll_keys()) {
      if (!key.get(c).empty()) head_.params[std::string(key.name)] = key.get(c);
    }
    if (c.mode == Mode::sim) head_.extra_hard["simulated_machine"] = hash_text(to_json(c.machine));
    if (!flags.out.empty() && flags.out != "-") lines_ = std::make_unique<JsonLines>(flags.out);
    if (!flags.csv.empty()) csv_ = std::make_unique<CsvFile>(flags.csv);
  }

  bool tells() const { return !json_; }
  void print(const std::string& text) const {
    if (json_) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  const MeasuredPoint& add(PointResult result) {
    PointSummary summary = summarize(case_, result, around_);
    all_.push_back({std::move(result), std::move(summary)});
    if (!lines_ && !csv_ && !json_) return all_.back();
    for (Json& row : coll_rows(case_, all_.back(), around_, head_, flags_.raw)) {
      if (on_mpi(case_.mode)) add_mpi(row, std::llround(all_.back().result.clock_uncertainty_ns));
      write(row);
    }
    return all_.back();
  }
  void add(const OutOfMemory& error, const std::optional<Point>& at) {
    write(out_of_memory_row(case_, at, around_, head_, error));
  }
  const std::vector<MeasuredPoint>& all() const { return all_; }

 private:
  void write(const Json& row) {
    try {
      if (lines_) lines_->add(row);
      if (csv_) csv_->add(row);
    } catch (const Error& error) {
      throw Exit(kExitNoData, error.what());
    }
    if (!json_) return;
    fmt::print("{}", to_line(row));
    std::fflush(stdout);
  }

  const CollCase& case_;
  const Flags& flags_;
  const Surroundings& around_;
  const bool json_;
  RowHead head_;
  std::unique_ptr<JsonLines> lines_;
  std::unique_ptr<CsvFile> csv_;
  std::vector<MeasuredPoint> all_;
};

// One table: rows of a size are printed once both of its places are there. False: interrupted.
bool run_table(const CollCase& c, const std::vector<Point>& points, Source& source, Sink* sink,
               const Surroundings& around) {
  if (sink) sink->print(table_head(c, points, around));
  std::vector<MeasuredPoint> table;
  std::optional<MeasuredPoint> out_of_place;
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::optional<PointResult> result = source.next(points[i]);
    if (source.was_interrupted()) return false;
    if (!sink) continue;
    const MeasuredPoint& measured = sink->add(std::move(*result));
    table.push_back(measured);
    const bool other_follows = !points[i].in_place && i + 1 < points.size() &&
                               points[i + 1].in_place && points[i + 1].bytes == points[i].bytes &&
                               points[i + 1].algorithm == points[i].algorithm;
    if (other_follows) {
      out_of_place = measured;
      continue;
    }
    const MeasuredPoint* in = points[i].in_place ? &measured : nullptr;
    const MeasuredPoint* out = out_of_place ? &*out_of_place : in ? nullptr : &measured;
    sink->print(table_rows(c, out, in));
    if (const auto too_large = does_not_fit(c, (out ? out : in)->result.point, around))
      sink->print(cat("# does not fit: ", too_large->what(), "\n"));
    out_of_place.reset();
  }
  if (sink) sink->print(table_foot(table));
  return true;
}

// Each axis' operation with that of each axis beside it.
struct Matrix {
  std::vector<std::string> axes;
  std::vector<std::vector<Point>> points;
};

Matrix matrix_of(const CollCase& c) {
  require(c.mode != Mode::sim, "--matrix measures; mode=sim has none");
  require(c.operations.size() == 1 && c.sizes.size() == 1 && !c.beside &&
              c.overlap == ComputeKind::none && c.algorithms.size() == 1,
          "--matrix takes one op=, one size= and one algorithm=, and no beside= or overlap=; for "
          "example op=all_reduce size=1M");
  Matrix matrix;
  std::vector<Group> axes;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (c.mesh.size(static_cast<Axis>(axis)) > 1) axes.push_back(group_of(static_cast<Axis>(axis)));
  }
  require(!axes.empty(), "--matrix: mesh=", c.mesh.to_text(),
          " has no axis with more than one rank; give one such as mesh=dp2.tp2");
  for (const Group& axis : axes) {
    matrix.axes.push_back(name_of(axis));
    matrix.points.emplace_back();
    for (const Group& beside : axes)
      matrix.points.back().push_back(
          {.operation = c.operations[0],
           .group = axis,
           .bytes = c.sizes[0],
           .type = c.dtypes[0],
           .redop = c.redops[0],
           .algorithm = algorithms_of(c, c.operations[0], axis, c.sizes[0])[0],
           .beside = Beside{c.operations[0], beside, c.sizes[0]}});
  }
  return matrix;
}

bool run_matrix(const Matrix& matrix, Source& source, Sink* sink) {
  std::vector<std::vector<std::optional<double>>> slow_down;
  for (const std::vector<Point>& row : matrix.points) {
    slow_down.emplace_back();
    for (const Point& point : row) {
      std::optional<PointResult> result = source.next(point);
      if (source.was_interrupted()) return false;
      if (!sink) continue;
      const PointSummary& summary = sink->add(std::move(*result)).summary;
      double worst = 0;
      for (const GroupSummary& group : summary.groups)
        worst = std::max(worst, group.completion.p50 / share_of_time(point.operation) /
                                    std::max(1.0, *group.alone_ns));
      slow_down.back().push_back(worst);
    }
  }
  if (!sink) return true;
  sink->print(
      "# slow-down of the median while the other runs beside it on second threads of the "
      "same ranks, slowest group\n");
  sink->print(matrix_text(matrix.axes, slow_down));
  return true;
}

void write_fit(const CollCase& c, const Flags& flags, const std::vector<MeasuredPoint>& all) {
  Machine machine = c.machine_name.empty() ? find_machine("cpu") : c.machine;
  machine.ranks_per_node = c.mesh.ranks_per_node();
  FitReport report{.collectives = fit_collectives(collective_times(c, all), machine)};
  if (!report.found_for_machine())
    throw Exit(kExitNoVerdict, cat("--fit ", flags.fit, ": nothing could be fitted\n",
                                   to_text(report, machine, {})));
  machine.name = cat("fitted-", machine.name);
  write_whole(flags.fit, [&](std::ostream& out) { out << to_json(machine) << '\n'; });
  fmt::print(stderr, "{}", to_text(report, machine, {}));
}

// The processor that this ran on, or in mode=sim the machine.
std::string machine_text(const CollCase& c) {
  if (c.mode == Mode::sim) return c.machine.name;
  const std::map<std::string, Fact> facts = fingerprint().hard;
  const auto found = facts.find("cpu_model");
  const auto* model = found == facts.end() ? nullptr : std::get_if<std::string>(&found->second);
  return model ? *model : "unknown";
}

void write_tuning(const CollCase& c, const Flags& flags, const std::vector<MeasuredPoint>& all) {
  const Tuning tuning{.mode = std::string(name_of(c.mode)),
                      .machine = machine_text(c),
                      .library = on_mpi(c.mode) ? mpi_text() : "none",
                      .case_line = to_text(c),
                      .operations = tune(timed_rows(all))};
  write_whole(flags.tune, [&](std::ostream& out) { out << to_json(tuning); });
}

void check_tune(const CollCase& c, const Flags& flags) {
  if (flags.tune.empty()) return;
  require(c.algorithms.size() > 1, "--tune ", flags.tune,
          " compares algorithms; give several, for example algorithm=own,ring,tree");
  require(!flags.matrix, "--tune and --matrix go one at a time; leave one out");
  for (const Operation operation : c.operations) {
    require(std::any_of(c.algorithms.begin(), c.algorithms.end(),
                        [&](Algorithm algorithm) { return is_choice(operation, algorithm); }),
            "--tune ", flags.tune, ": ", name_of(operation),
            " has none of the algorithms; add own to algorithm=, or leave it out of op=");
  }
}

void finish(const CollCase& c, const Flags& flags, const Surroundings& around, const Sink& sink,
            bool whole) {
  if (flags.explain && around.no_speed.empty()) sink.print("\n" + second_table(sink.all()));
  if (whole && !flags.fit.empty()) write_fit(c, flags, sink.all());
  for (const MeasuredPoint& m : sink.all()) {
    for (const GroupResult& group : m.result.groups) {
      if (group.findings.wrong > 0)
        throw Exit(kExitNoVerdict, cat(to_text(m.result.point), ": wrong data: ",
                                       group.findings.wrong, " elements; first on rank ",
                                       group.wrong_rank, ", element ", group.findings.index));
    }
  }
  if (whole && !flags.tune.empty()) write_tuning(c, flags, sink.all());
}

void open(std::optional<Sink>& sink, const CollCase& c, const Flags& flags,
          const Surroundings& around) {
  try {
    sink.emplace(c, flags, around);
  } catch (const Error& error) {
    throw Exit(kExitNoData, error.what());
  }
}

void run(const Flags& flags) {
  const CollCase c = launched(parse_coll_case(flags.words), "coll");
  check_outputs(
      {{"--out", flags.out}, {"--csv", flags.csv}, {"--fit", flags.fit}, {"--tune", flags.tune}},
      "--out");
  check_tune(c, flags);
  std::optional<Matrix> matrix;
  if (flags.matrix) matrix = matrix_of(c);
  const std::vector<std::vector<Point>> tables = matrix ? matrix->points : tables_of(c);
  std::vector<Point> points;
  for (const std::vector<Point>& table : tables)
    points.insert(points.end(), table.begin(), table.end());

  Surroundings around = surroundings_of(c, points);
  require(around.no_speed.empty() || (flags.fit.empty() && flags.tune.empty() && !flags.matrix),
          "--fit, --tune and --matrix are made of times, and this is ", around.no_speed,
          "; leave them out");
  std::optional<Source> source;
  std::optional<Sink> sink;
  bool whole = true;
  try {
    source.emplace(c, points);
    around.cores = source->core_share();
    if (source->prints()) open(sink, c, flags, around);
    if (sink && flags.explain) sink->print(explanation(c, around));
    const Interrupts interrupts;
    if (matrix) whole = run_matrix(*matrix, *source, sink ? &*sink : nullptr);
    for (std::size_t t = 0; !matrix && t < tables.size() && whole; ++t)
      whole = run_table(c, tables[t], *source, sink ? &*sink : nullptr, around);
  } catch (const OutOfMemory& error) {
    if (!reports()) throw;
    if (!sink) open(sink, c, flags, around);
    sink->add(error, source ? source->at() : std::nullopt);
    throw Exit(kExitOutOfMemory, error.what());
  }
  if (sink) finish(c, flags, around, *sink, whole);
  if (!whole)
    throw Exit(kExitInterrupted,
               "interrupted; rows that were complete are written. Run again: meshbench coll " +
                   to_text(c));
}

}  // namespace

Verb coll_verb() {
  auto flags = std::make_shared<Flags>();
  const CollCase defaults;
  return {
      .name = "coll",
      .help = "Time collectives on the process groups of a mesh, in nccl-tests' table",
      .arguments =
          {{.name = "case",
            .into = &flags->words,
            .help = "What to time, as key=value words:\n" + help_of(coll_keys(), defaults),
            .type = "key=value ..."},
           {"-o,--out", &flags->out,
            "Write a JSON object a line, for each group, size and place, as they come; - is "
            "stdout, instead of tables"},
           {"--csv", &flags->csv, "The same fields as CSV"},
           {"--json", &flags->json, "Print those lines instead of tables"},
           {"--raw", &flags->raw, "Every operation's time in the rows too"},
           {"--explain", &flags->explain,
            "Say what factors and ceilings are, and add a table of percentiles, skew, wait, "
            "transfer, ceilings and verdicts"},
           {"--matrix", &flags->matrix,
            "Slow-down of each axis' operation while each axis' runs beside it"},
           {"--fit", &flags->fit,
            "Fit curves, links and NICs to the times, as 'meshbench fit' does, and write a "
            "machine that machine=@FILE reads"},
           {"--tune", &flags->tune,
            "Write which of several algorithm= was fastest from which size on, in the form "
            "that algorithm=@FILE reads"}},
      .footer =
          "Examples:\n  meshbench coll size=1K,1M\n  meshbench coll op=all mesh=dp2.tp2 axis=all "
          "size=64K time_cap=50ms -o rows.jsonl --csv rows.csv\n"
          "  meshbench coll op=all_reduce mesh=dp2.tp2 axis=tp size=1M overlap=matmul --explain\n"
          "  meshbench coll mesh=dp2.tp2 size=256K --matrix\n"
          "  meshbench coll op=all_reduce,all_to_all mesh=dp2.tp8 mode=sim machine=h100x8 axis=all "
          "size=1M:1G:x4\n"
          "  meshbench coll size=4K:4M:x4 time_cap=100ms --fit here.json\n"
          "  meshbench coll op=all_reduce,all_gather mesh=dp4 algorithm=own,ring,tree "
          "size=4K:4M:x4 time_cap=50ms --tune tuned.json\n"
          "  meshbench coll mesh=dp4 size=1M algorithm=@tuned.json",
      .run = [flags] { run(*flags); }};
}

}  // namespace mb
