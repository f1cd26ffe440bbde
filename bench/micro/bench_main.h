// The main of every Google Benchmark binary of this project, with the library's traps closed:
// leaked BENCHMARK_* variables do not shrink a run, an unknown flag and a filter that matches
// nothing fail, and so does an error in any benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

namespace mb {

// `add` registers the benchmarks; it gets the arguments that are not --benchmark_* flags and throws
// Error for those it does not want. Exit codes as of `meshbench`: 0, 2 usage, 3 a benchmark failed,
// 4 the filter matches nothing.
// Where a launcher has started it several times, rank 0 runs the benchmarks and the other processes
// run `follow` after `add`, until rank 0 ends it by `done`; without one, that is refused.
int run_benchmarks(int argc, char** argv,
                   const std::function<void(const std::vector<std::string>&)>& add,
                   const std::function<void()>& follow = {},
                   const std::function<void()>& done = {});

// Ends a benchmark with an error, and the program with exit code 3: the library alone would exit
// with 0.
void fail(benchmark::State& state, const std::string& message);

// For names and labels: control characters would make the JSON output unreadable.
std::string printable(std::string text);

}  // namespace mb
