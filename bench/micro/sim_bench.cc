// How long it takes to plan, prove and simulate a step of a large pipeline: sc21-1t on tp8, its 128
// layers divided over the stages. Nothing is executed.
#include <benchmark/benchmark.h>

#include <optional>
#include <utility>

#include "bench/micro/bench_main.h"
#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

Plan plan_of(const benchmark::State& state) {
  return plan_step(find_model("sc21-1t"), Mesh::parse(cat("pp", state.range(0), ".tp8")),
                   {.micro_batches = static_cast<int>(state.range(1))});
}

void count(benchmark::State& state, const Plan& plan) {
  std::size_t instructions = 0;
  for (const Program& program : plan.programs) instructions += program.instructions.size();
  state.counters["instructions"] = static_cast<double>(instructions);
}

void build(benchmark::State& state) {
  std::optional<Plan> plan;
  for (auto _ : state) {
    state.PauseTiming();
    plan.reset();
    state.ResumeTiming();
    plan = plan_of(state);
  }
  count(state, *plan);
}

void prove(benchmark::State& state) {
  const Plan plan = plan_of(state);
  for (auto _ : state) validate(plan);
  count(state, plan);
}

void simulate_step(benchmark::State& state) {
  const Plan plan = plan_of(state);
  const auto cost = make_roofline_cost(plan, find_machine("h100x8"));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plan, *cost));
  count(state, plan);
}

void add(const std::vector<std::string>& arguments) {
  require(arguments.empty(), "sim_bench takes no '", arguments.empty() ? "" : arguments[0], "'");
  using Run = void (*)(benchmark::State&);
  const std::pair<const char*, Run> all[] = {
      {"build", build}, {"prove", prove}, {"simulate", simulate_step}};
  for (const auto& [name, run] : all) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgNames({"pp", "micro_batches"})
        ->Args({8, 64})
        ->Args({64, 512})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) { return mb::run_benchmarks(argc, argv, mb::add); }
