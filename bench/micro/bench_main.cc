#include "bench/micro/bench_main.h"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "bench/cli/ranks.h"
#include "parallel/comm/launcher.h"
#include "workloads/base/error.h"
#include "workloads/ops/launch.h"

extern char** environ;

namespace mb {
namespace {

void drop_benchmark_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("BENCHMARK_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) {
    std::fprintf(stderr, "ignoring %s from the environment; give the flag instead\n", name.c_str());
    unsetenv(name.c_str());
  }
}

int failures = 0;

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

void fail(benchmark::State& state, const std::string& message) {
  ++failures;
  state.SkipWithError(printable(message).c_str());
}

int run_benchmarks(int argc, char** argv,
                   const std::function<void(const std::vector<std::string>&)>& add,
                   const std::function<void()>& follow, const std::function<void()>& done) {
  silence_unless_reporting();
  drop_benchmark_variables();
  benchmark::Initialize(&argc, argv);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string program = std::filesystem::path(argv[0]).filename();
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("-")) continue;
    std::fprintf(stderr, "%s: unknown flag %s; --help lists the flags\n", argv[0],
                 argument.c_str());
    return 2;
  }
  try {
#ifdef NDEBUG
    benchmark::AddCustomContext("meshbench_build_type", "release");
#else
    benchmark::AddCustomContext("meshbench_build_type", "debug");
#endif
    benchmark::AddCustomContext("meshbench_compiler", __VERSION__);
    benchmark::AddCustomContext("meshbench_isa", cpu_isa());
    benchmark::AddCustomContext("meshbench_matmul_fp32", matmul_backend(DType::fp32));
    const std::optional<Launcher> by = launcher();
    require(follow || !by || by->size == 1, "measures one process; it was started ",
            by ? by->size : 1, " times by ", by ? by->name : "", ": start it once, alone");
    add(arguments);
  } catch (const Error& error) {
    return fail(program, error.what(), 2);
  }
  if (!reports()) {
    follow();
    finish_ranks();
    return 0;
  }
  const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (done) done();
  finish_ranks();
  if (matched == 0) {
    std::fprintf(stderr, "%s: no benchmark matches the filter\n", argv[0]);
    return 4;
  }
  return failures > 0 ? 3 : 0;
}

}  // namespace mb
