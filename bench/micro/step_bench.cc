// Whole training steps as benchmarks: one a case. Time is the step window: from the first rank's
// start to the slowest rank's end.
//
//   step_bench                                          the cases below
//   step_bench "model=gpt-10m global_batch=8" "case=first" --benchmark_repetitions=3
//   mpirun -n 2 step_bench "mode=mpi mesh=dp2"
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench/analysis/memory.h"
#include "bench/analysis/metrics.h"
#include "bench/analysis/stats.h"
#include "bench/cli/case.h"
#include "bench/cli/peak.h"
#include "bench/cli/ranks.h"
#include "bench/micro/bench_main.h"
#include "parallel/device/device.h"
#include "parallel/exec/processes.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/model/counts.h"
#include "workloads/model/data.h"
#include "workloads/ops/peak.h"

namespace mb {
namespace {

constexpr const char* kDefaultCases[] = {
    "model=gpt-1m mesh=1 micro_batch=8 global_batch=8",
    "model=gpt-1m mesh=dp2 micro_batch=8 global_batch=16",
    "model=gpt-1m mesh=tp2 micro_batch=8 global_batch=8",
    "model=gpt-1m mesh=pp2 micro_batch=2 global_batch=16",
    "model=gpt-1m mesh=dp2.pp2.tp2 micro_batch=1 global_batch=16",
    "model=llama-1m mesh=dp2 micro_batch=8 global_batch=16",
    "case=textbook-100b",
};

// A name without spaces, as filters want it: "gpt-1m/dp2/1f1b/mb8/gb16".
std::string name_of(const Case& c) {
  return printable(cat(c.model_name, '/', c.mesh.to_text(), '/', c.options.schedule, "/mb",
                       c.options.micro_batch, "/gb", c.global_batch, '/', name_of(c.options.dtype),
                       '/', name_of(c.mode)));
}

void add_counters(benchmark::State& state, const Case& c, const Plan& plan,
                  const Executor& executor, const std::vector<StepTimes>& steps,
                  const Peak& peak_rate) {
  StepWork work{.tokens = static_cast<double>(c.global_batch * c.model.sequence),
                .model_flops = model_flops(c.model, c.global_batch, FlopConvention::megatron),
                .recomputed_flops = recomputed_flops(plan),
                .devices = peak_rate.devices,
                .peak_flops_per_s = peak_rate.flops_per_s};
  for (const Metric& metric : step_metrics(steps, work)) {
    if (metric.samples.empty()) continue;
    const bool wanted = metric.name == "tokens_per_s" || metric.name == "mfu" ||
                        metric.name == "hfu" || metric.name == "bubble_fraction" ||
                        metric.name == "exposed_comm_s";
    if (wanted) state.counters[metric.name] = median(metric.samples);
  }
  std::int64_t total = 0;
  BytesByClass peak{};
  for (int rank = 0; rank < c.mesh.world(); ++rank) {
    const std::optional<MemoryPeak> measured = executor.memory(rank);
    const MemoryPeak memory = measured ? *measured : memory_peak(plan.program_of(rank));
    total = std::max(total, memory.total_bytes);
    for (int m = 0; m < kMemoryClasses; ++m) peak[m] = std::max(peak[m], memory.class_peak[m]);
    if (!measured && rank >= plan.mesh.size(Axis::pp)) break;
  }
  state.counters["peak_bytes"] = static_cast<double>(total);
  for (int m = 0; m < kMemoryClasses; ++m) {
    if (peak[m] > 0)
      state.counters[cat("peak_", name_of(static_cast<MemoryClass>(m)), "_bytes")] =
          static_cast<double>(peak[m]);
  }
}

// A case with all that its ranks run on.
struct Ranks {
  explicit Ranks(const Case& c)
      : plan(plan_step(c.model, c.mesh, c.options)),
        source(make_markov_source(c.model.vocabulary, static_cast<std::uint64_t>(c.seed))),
        batches(make_batches(*source, c.global_batch, c.mesh.data_size())),
        cost(make_roofline_cost(plan, c.machine, c.stack)) {
    validate(plan);
    if (c.mode == Mode::sim) {
      executor = make_sim_executor(plan, *cost);
      return;
    }
    world.emplace(c);
    executor = make_live_executor(plan,
                                  {.make_device = devices_of(c.mode, c.mesh, cuda_options(c)),
                                   .batches = batches.get(),
                                   .timeout_s = c.timeout_s},
                                  **world);
    for (int i = 0; i < c.warm_up; ++i) executor->step();
  }

  const Plan plan;
  const std::unique_ptr<TokenSource> source;
  const std::unique_ptr<BatchSource> batches;
  const std::unique_ptr<CostModel> cost;
  std::optional<CaseWorld> world;
  std::unique_ptr<Executor> executor;
};

// What rank 0 tells the other processes of mode=mpi: the case to begin, by its number, then before
// each step to take it, and after the last that memory is asked for.
constexpr std::int64_t kEnd = -1, kStep = -2, kDone = -3;

std::vector<Case> mpi_cases;
std::unique_ptr<Processes> processes;

std::int64_t tell(std::int64_t order) {
  if (!processes) processes = std::make_unique<Processes>(mpi_world(), "orders");
  std::vector<std::int64_t> orders = {order};
  processes->share(orders, 0);
  return orders[0];
}

void tell_end() {
  if (mpi_cases.empty()) return;
  tell(kEnd);
  processes.reset();
}

// The other processes.
void follow() {
  for (std::int64_t order = tell(0); order != kEnd; order = tell(0)) {
    const Case& c = mpi_cases.at(static_cast<std::size_t>(order));
    Ranks ranks(c);
    while (tell(0) == kStep) ranks.executor->step();
    for (int rank = 0; rank < c.mesh.world(); ++rank) ranks.executor->memory(rank);
  }
  processes.reset();
}

void run(benchmark::State& state, const Case& c) {
  const auto ask = [&](std::int64_t order) {
    if (on_mpi(c.mode)) tell(order);
  };
  const auto number = std::find_if(mpi_cases.begin(), mpi_cases.end(),
                                   [&](const Case& one) { return to_text(one) == to_text(c); });
  ask(number - mpi_cases.begin());
  Ranks ranks(c);
  std::vector<StepTimes> steps;
  for (auto _ : state) {
    ask(kStep);
    const StepResult result = ranks.executor->step();
    const Span window = result.timeline.window();
    state.SetIterationTime(static_cast<double>(window.end_ns - window.start_ns) * 1e-9);
    state.PauseTiming();
    if (steps.size() < 50)
      steps.push_back(step_times(ranks.plan, result.timeline, result.clock_uncertainty_ns));
    state.ResumeTiming();
  }
  ask(kDone);
  add_counters(state, c, ranks.plan, *ranks.executor, steps, peak_of(c));
  state.SetLabel(printable(to_text(c)));
}

// The same step with and without its timeline, in turn; recording_cost is the ratio of the medians
// less 1.
void run_recording(benchmark::State& state, const Case& c) {
  const Plan plan = plan_step(c.model, c.mesh, c.options);
  const auto source = make_markov_source(c.model.vocabulary, static_cast<std::uint64_t>(c.seed));
  const auto batches = make_batches(*source, c.global_batch, c.mesh.data_size());
  const auto executor = make_thread_executor(plan, {.batches = batches.get()});
  const auto seconds = [&](bool record) {
    const std::int64_t start = now_ns();
    executor->step(record);
    return 1e-9 * static_cast<double>(now_ns() - start);
  };
  for (int i = 0; i < 3; ++i) seconds(true);
  std::vector<double> recorded, bare;
  for (auto _ : state) {
    const bool recorded_first = recorded.size() % 2 == 0;
    if (recorded_first) recorded.push_back(seconds(true));
    bare.push_back(seconds(false));
    if (!recorded_first) recorded.push_back(seconds(true));
    state.SetIterationTime(recorded.back());
  }
  state.counters["recording_cost"] = median(recorded) / median(bare) - 1;
  state.SetLabel(printable(to_text(c)));
}

void add(const std::string& name, const Case& c,
         void (*benchmark)(benchmark::State&, const Case&)) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [c, benchmark](benchmark::State& state) {
                                 try {
                                   benchmark(state, c);
                                 } catch (const std::exception& error) {
                                   if (on_mpi(c.mode)) fail("step_bench", error.what(), 3);
                                   fail(state, error.what());
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

// Without arguments: the default cases, and what recording costs.
void add_all(const std::vector<std::string>& arguments) {
  std::vector<std::string> cases = arguments;
  if (cases.empty()) {
    cases.assign(std::begin(kDefaultCases), std::end(kDefaultCases));
    for (const char* model : {"model=gpt-1m", "model=gpt-10m"}) {
      const Case c = parse_case({model, "micro_batch=8", "global_batch=8"});
      add("recording/" + name_of(c), c, run_recording);
    }
  }
  for (const std::string& text : cases) {
    const Case c = launched(parse_case(split_words(text)), "run");
    if (on_mpi(c.mode)) mpi_cases.push_back(c);
    add(name_of(c), c, run);
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) {
  return mb::run_benchmarks(argc, argv, mb::add_all, mb::follow, mb::tell_end);
}
