// How long it takes to plan, prove and simulate a step of a large pipeline. Nothing is executed.
//
// build, prove, simulate: sc21-1t on tp8, its 128 layers divided over the stages. The rest: 16
// stages, 16 micro-batches, tp8 and as many data ranks as it takes, on h100x8; `ranks` of 1,024,
// 16,384 and 100,096. Times a second are those of instructions of the Plan.
#include <benchmark/benchmark.h>

#include <optional>
#include <utility>

#include "bench/micro/bench_main.h"
#include "parallel/cost/cost.h"
#include "parallel/exec/folded_step.h"
#include "parallel/exec/jitter.h"
#include "parallel/exec/predict.h"
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
  state.counters["per_second"] = benchmark::Counter(static_cast<double>(instructions),
                                                    benchmark::Counter::kIsIterationInvariantRate);
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

// The step of the goals, on so many ranks.
struct Large {
  ModelConfig model = find_model("sc21-1t");
  Machine machine = find_machine("h100x8");
  Mesh mesh;
  StepOptions options{.micro_batches = 16, .dtype = DType::bf16};
  explicit Large(const benchmark::State& state)
      : mesh(Mesh::parse(cat("dp", state.range(0) / 128, ".pp16.tp8"))) {}
  Plan plan() const { return plan_step(model, mesh, options); }
};

// Network, costs, classes, walk and timeline of all instructions.
void op_level(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate(plan, *make_roofline_cost(plan, large.machine)));
  count(state, plan);
}

// The step's time by runs, with nothing recorded of a step before.
void folded(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  FoldedStep step(plan, RankClasses::by_stage(plan),
                  costs_of(plan, *make_roofline_cost(plan, large.machine)));
  for (auto _ : state) {
    step.forget();
    benchmark::DoNotOptimize(step.end_ns());
  }
  count(state, plan);
  state.counters["runs"] = static_cast<double>(step.counts().runs);
}

void cut_into_runs(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  const RankClasses classes = RankClasses::by_stage(plan);
  const StepCosts costs = costs_of(plan, *make_roofline_cost(plan, large.machine));
  for (auto _ : state) benchmark::DoNotOptimize(FoldedStep(plan, classes, costs));
  count(state, plan);
}

void with_straggler(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  const auto cost = make_roofline_cost(plan, large.machine);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plan, *cost, {.ranks = {{5, 1.5}}}));
  count(state, plan);
}

void with_jitter(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  const RankClasses classes = RankClasses::by_stage(plan);
  const StepCosts costs = costs_of(plan, *make_roofline_cost(plan, large.machine));
  for (auto _ : state)
    benchmark::DoNotOptimize(spread_of_step(plan, classes, costs, {.gpu = 0.01, .op = 0.02}, 1));
  count(state, plan);
}

void with_interference(benchmark::State& state) {
  const Large large(state);
  const Plan plan = large.plan();
  Stack stack = find_stack("kernels");
  stack.comm_sm_share = 0.12;
  const auto cost = make_roofline_cost(plan, large.machine, stack);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plan, *cost));
  count(state, plan);
}

// From the case to the answer, Plans included.
void predict_case(benchmark::State& state) {
  const Large large(state);
  for (auto _ : state)
    benchmark::DoNotOptimize(predict(large.model, large.mesh, large.options, large.machine, {}));
}

void add(const std::vector<std::string>& arguments) {
  require(arguments.empty(), "sim_bench takes no '", arguments.empty() ? "" : arguments[0], "'");
  using Run = void (*)(benchmark::State&);
  const std::pair<const char*, Run> pipelines[] = {
      {"build", build}, {"prove", prove}, {"simulate", simulate_step}};
  for (const auto& [name, run] : pipelines) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgNames({"pp", "micro_batches"})
        ->Args({8, 64})
        ->Args({64, 512})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  const std::pair<const char*, Run> large[] = {
      {"op_level", op_level},           {"folded", folded},
      {"cut_into_runs", cut_into_runs}, {"with_straggler", with_straggler},
      {"with_jitter", with_jitter},     {"with_interference", with_interference},
      {"predict", predict_case}};
  for (const auto& [name, run] : large) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgName("ranks")
        ->Arg(1024)
        ->Arg(16384)
        ->Arg(100096)
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) { return mb::run_benchmarks(argc, argv, mb::add); }
