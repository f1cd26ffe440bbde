// Collectives as benchmarks. Time is that of one operation: from the last rank's start to the last
// one's end.
//
//   collectives_bench                                    the operations below, here and simulated
//   collectives_bench "op=all_reduce mesh=dp2.tp2 axis=tp size=1M" --benchmark_repetitions=3
#include <benchmark/benchmark.h>

#include <algorithm>

#include "bench/cli/coll_case.h"
#include "bench/cli/ranks.h"
#include "bench/coll/rank.h"
#include "bench/micro/bench_main.h"
#include "bench/micro/measured_point.h"
#include "parallel/device/device.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

constexpr const char* kDefaultCases[] = {
    "op=all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,shift mesh=dp2 "
    "size=1K,64K,1M,16M in_place=out",
    "op=barrier,ping_pong mesh=dp2 size=8,64K",
    "op=all_reduce mesh=dp4 size=1K,1M in_place=out",
    "op=all_reduce,all_gather mesh=dp8 mode=sim size=1M,1G in_place=out",
};

// "1MiB", without the blank.
std::string size_text(std::int64_t bytes) {
  std::string text = format_bytes(static_cast<double>(bytes));
  std::erase(text, ' ');
  return text;
}

// As filters want it: "all_reduce/threads/2/fp32/1MiB", of an axis "all_reduce/threads/tp2/...".
std::string name_of(const CollCase& c, const Point& point) {
  const std::string axis = point.group == kWorld ? "" : name_of(point.group);
  return printable(
      cat(name_of(point.operation), '/', name_of(c.mode), '/', axis, c.mesh.group_size(point.group),
          '/', name_of(point.type), '/', size_text(point.bytes), point.in_place ? "/in_place" : "",
          point.algorithm == Algorithm::own ? "" : cat('/', name_of(point.algorithm))));
}

// The case of the one point.
std::string line_of(CollCase c, const Point& point) {
  c.operations = {point.operation};
  c.axes_text = name_of(point.group);
  c.sizes_text = cat(point.bytes);
  c.dtypes = {point.type};
  c.redops = {point.redop};
  c.tuning.reset();
  c.algorithms = {point.algorithm};
  c.places = point.in_place ? Places::in : Places::out;
  return to_text(c);
}

// One measurement, with its own warm-up and stopping rule, hands out its times in turn: the library
// asks for as many as it likes.
void run(benchmark::State& state, const CollCase& c, const Point& point) {
  const auto summary = measured_point(c, point, {.mode = std::string(name_of(c.mode))});
  if (!summary) {  // another process has it
    for (auto _ : state) state.SetIterationTime(1e-9);
    return;
  }
  const GroupSummary& s = slowest(*summary);
  for (auto _ : state) state.SetIterationTime(1e-9 * s.completion.p50);
  if (s.algbw) state.counters["algbw"] = *s.algbw;
  if (s.busbw) state.counters["busbw"] = *s.busbw;
  state.counters["bytes"] = static_cast<double>(s.bytes);
  state.counters["operations"] = static_cast<double>(s.completion.n);
  state.counters["p99_s"] = 1e-9 * s.completion.p99;
  state.SetLabel(printable(line_of(c, point)));
}

// What a rank spends on measuring: two readings of the clock and their places in the arrays.
void record(benchmark::State& state) {
  constexpr std::int64_t kOperations = 4096;
  Stamps stamps(kOperations);
  std::int64_t i = 0;
  for (auto _ : state) {
    stamps.start(i, now_ns());
    benchmark::ClobberMemory();
    stamps.end(i, now_ns());
    i = (i + 1) % kOperations;
  }
}

void add(const CollCase& c, const Point& point) {
  benchmark::RegisterBenchmark(name_of(c, point).c_str(),
                               [c, point](benchmark::State& state) {
                                 try {
                                   run(state, c, point);
                                 } catch (const std::exception& error) {
                                   fail(state, error.what());
                                 }
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

void add_all(const std::vector<std::string>& arguments) {
  std::vector<std::string> cases = arguments;
  if (cases.empty()) {
    cases.assign(std::begin(kDefaultCases), std::end(kDefaultCases));
    benchmark::RegisterBenchmark("record", record);
  }
  for (const std::string& text : cases) {
    const CollCase c = launched(parse_coll_case(split_words(text)), "coll");
    for (const std::vector<Point>& table : tables_of(c)) {
      for (const Point& point : table) add(c, point);
    }
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) { return mb::run_benchmarks(argc, argv, mb::add_all); }
