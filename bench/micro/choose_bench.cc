// How long it takes to choose a case: one closed form, one walk over slots, one step in virtual
// time, and a whole search of some 20,000 cases.
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "bench/choose/closed_form.h"
#include "bench/choose/search.h"
#include "bench/micro/bench_main.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// gpt3-175b on A100 under Megatron-LM of 2021, with what makes it some 20,000 cases.
Question question(int gpus) {
  Question q;
  q.model = find_model("gpt3-175b");
  q.machine = find_machine("a100x8");
  q.stack = find_stack("megatron-2021");
  q.gpus = gpus;
  q.global_batch = 1536;
  q.options.dtype = DType::bf16;
  q.memory_bytes = 1e9 * q.machine.memory_gb;
  q.cp = q.rdp = q.tensor_chunks = 1;
  q.offload = {{false, false}};
  return q;
}

// Cases of a mesh follow each other, as in a search.
void over_cases(benchmark::State& state, auto&& evaluate) {
  const Space space(question(1024));
  std::vector<Candidate> cases;
  std::vector<StepOptions> options;
  for (int mesh = 0; mesh < static_cast<int>(space.meshes().size()); ++mesh)
    space.visit(
        mesh,
        [&](const Candidate& c, const StepOptions& o) {
          cases.push_back(c);
          options.push_back(o);
        },
        [](const Refusal&) {});
  const Question& q = space.question();
  ClosedForm form(q.model, q.machine, q.stack);
  std::int64_t evaluations = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < cases.size(); ++i)
      benchmark::DoNotOptimize(evaluate(form, space.meshes()[cases[i].mesh], options[i]));
    evaluations += static_cast<std::int64_t>(cases.size());
  }
  state.counters["cases"] = static_cast<double>(cases.size());
  state.SetItemsProcessed(evaluations);
}

void closed_form(benchmark::State& state) {
  over_cases(state, [](ClosedForm& form, const Mesh& mesh, const StepOptions& options) {
    return form.estimate(mesh, options);
  });
}

void slots(benchmark::State& state) {
  over_cases(state, [](ClosedForm& form, const Mesh& mesh, const StepOptions& options) {
    return form.walked_s(mesh, options);
  });
}

void whole_search(benchmark::State& state) {
  const Space space(question(static_cast<int>(state.range(0))));
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (auto _ : state) {
    const SearchResult result = search(space, {.threads = threads});
    state.counters["cases"] = static_cast<double>(result.cases);
    state.counters["walked"] = static_cast<double>(result.walked);
    state.counters["simulated"] = static_cast<double>(result.simulated);
  }
}

void add(const std::vector<std::string>& arguments) {
  require(arguments.empty(), "choose_bench takes no '", arguments.empty() ? "" : arguments[0], "'");
  benchmark::RegisterBenchmark("closed_form", closed_form)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("slots", slots)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("search", whole_search)
      ->ArgName("gpus")
      ->Arg(256)
      ->Arg(1024)
      ->Iterations(1)
      ->UseRealTime()
      ->Unit(benchmark::kSecond);
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) { return mb::run_benchmarks(argc, argv, mb::add); }
