// Benchmarks of operations on one core: every operation of a training step at its shape, whole
// steps, and what the core can do at best. Rates are per CPU time of the thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/micro/bench_main.h"
#include "parallel/device/device.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/rng.h"
#include "workloads/model/config.h"
#include "workloads/model/data.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/peak.h"

namespace mb {
namespace {

struct BoundOp {
  Op op;
  OpContext context;
  std::vector<const void*> reads;
  std::vector<void*> writes;
  void run() const { run_cpu_op(op, context, reads, writes); }
};

// The operations of one step on one rank, in order, over the memory that its plan lays out.
class Step {
 public:
  Step(const ModelConfig& model, std::int64_t batch, DType dtype)
      : plan_(plan_step(model, Mesh(), {.micro_batch = batch, .dtype = dtype})),
        device_(make_cpu_device(1, "ops")),
        arena_(static_cast<std::byte*>(device_->allocate(program().arena_bytes))),
        tokens_(make_markov_source(model.vocabulary, 1)),
        batches_(make_batches(*tokens_, batch, 1)) {
    for (const Instruction& instruction : program().instructions) {
      BoundOp bound{.op = plan_.op(std::get<Compute>(instruction.action))};
      bound.context.batches = batches_.get();
      for (TensorId t : program().reads(instruction)) bound.reads.push_back(address(t));
      for (TensorId t : program().writes(instruction)) bound.writes.push_back(address(t));
      ops_.push_back(std::move(bound));
    }
  }

  // Parameters get small numbers, and every tensor that an operation reads what a step leaves
  // there.
  void prepare() {
    if (prepared_) return;
    prepared_ = true;
    std::memset(arena_, 0, program().arena_bytes);
    for (const Bucket& bucket : program().buckets) {
      for (std::int64_t i = 0; i < bucket.elements; ++i) {
        const double value = 0.04 * random_uniform(1, bucket.name, i);
        if (program().tensors[bucket.value].dtype == DType::fp32) {
          static_cast<float*>(address(bucket.value))[i] = static_cast<float>(value);
        } else {
          static_cast<double*>(address(bucket.value))[i] = value;
        }
      }
    }
    for (const BoundOp& bound : ops_) bound.run();
  }
  const std::vector<BoundOp>& ops() const { return ops_; }
  double flops_per_step() const {
    double sum = 0;
    for (const BoundOp& bound : ops_) sum += flops(bound.op);
    return sum;
  }

 private:
  const Program& program() const { return plan_.programs[0]; }
  void* address(TensorId t) const { return arena_ + program().tensors[t].offset; }

  Plan plan_;
  std::unique_ptr<Device> device_;
  std::byte* arena_;
  std::unique_ptr<TokenSource> tokens_;
  std::unique_ptr<BatchSource> batches_;
  std::vector<BoundOp> ops_;
  bool prepared_ = false;
};

// The model of a case. "llama" has the size of gpt-10m with Llama's operations.
ModelConfig model_of(const std::string& name) {
  ModelConfig model = find_model("gpt-10m");
  if (name == "llama") {
    model.arch = Arch::llama;
    model.kv_heads = 2;
    model.ffn = 1024;
  }
  return model;
}

// Steps are built on first use and kept.
Step& step_of(const std::string& model, DType dtype) {
  static std::map<std::pair<std::string, DType>, std::unique_ptr<Step>> steps;
  std::unique_ptr<Step>& step = steps[{model, dtype}];
  if (!step) step = std::make_unique<Step>(model_of(model), 8, dtype);
  return *step;
}

double fma_ceiling(DType dtype) {
  static std::map<DType, double> known;
  double& value = known[dtype];
  if (value == 0) value = measure_fma_gflops(dtype);
  return value;
}

// The best rate of a matmul of the step, on the step's memory.
double matmul_ceiling(Step& step) {
  step.prepare();
  double best = 0;
  std::vector<Matmul> seen;
  for (const BoundOp& bound : step.ops()) {
    const auto* matmul = std::get_if<Matmul>(&bound.op.kind);
    if (!matmul || std::find(seen.begin(), seen.end(), *matmul) != seen.end()) continue;
    seen.push_back(*matmul);
    const double work = flops(bound.op);
    for (double spent_ns = 0; spent_ns < 2e8;) {
      const auto start = static_cast<double>(thread_cpu_ns());
      bound.run();
      const double run_ns = std::max(1.0, static_cast<double>(thread_cpu_ns()) - start);
      best = std::max(best, work / run_ns);
      spent_ns += run_ns;
    }
  }
  return best;
}

void run_op(benchmark::State& state, const std::string& model, DType dtype,
            const std::string& text) {
  step_of(model, dtype).prepare();
  const auto& ops = step_of(model, dtype).ops();
  const auto bound =
      std::find_if(ops.begin(), ops.end(), [&](const BoundOp& b) { return to_text(b.op) == text; });
  bound->run();
  const double start = thread_cpu_ns();
  for (auto _ : state) bound->run();
  const double run_ns = std::max(1.0, thread_cpu_ns() - start) / state.iterations();
  state.counters["GB_per_s"] = bytes_moved(bound->op) / run_ns;
  if (const double work = flops(bound->op); work > 0) {
    state.counters["GFLOP_per_s"] = work / run_ns;
    state.counters["of_fma"] = work / run_ns / fma_ceiling(dtype);
  }
}

// A whole step. of_matmul is against the best matmul of the same step in the same run.
void run_step(benchmark::State& state, const std::string& model, DType dtype) {
  Step& step = step_of(model, dtype);
  step.prepare();
  const double fma = measure_fma_gflops(dtype), matmul = matmul_ceiling(step);
  const double start = thread_cpu_ns();
  for (auto _ : state) {
    for (const BoundOp& bound : step.ops()) bound.run();
  }
  const double rate =
      step.flops_per_step() * state.iterations() / std::max(1.0, thread_cpu_ns() - start);
  state.counters["GFLOP_per_s"] = rate;
  state.counters["of_fma"] = rate / fma;
  state.counters["of_matmul"] = rate / matmul;
}

double matmul_ns = 0;
MatmulFunction<float> inner_matmul = nullptr;
void timed_matmul(const MatmulShape& shape, const float* a, const float* b, const float* bias,
                  float* c) {
  const double start = thread_cpu_ns();
  inner_matmul(shape, a, b, bias, c);
  matmul_ns += thread_cpu_ns() - start;
}

// Time inside matrix products during an attention operation.
template <class Kind>
void run_timed(const BoundOp& bound) {
  const CpuKernels& kernels = cpu_kernels();
  inner_matmul = use_onednn() ? onednn_matmul : kernels.matmul_fp32;
  const auto& kernel = static_cast<const Kernel<float, Kind>&>(kernels.fp32);
  kernel.run(std::get<Kind>(bound.op.kind),
             {{}, bound.reads.data(), bound.writes.data(), timed_matmul});
}

// Percent of a step's time by operation; "row" is all that is not inside a matrix product.
void run_shares(benchmark::State& state, const std::string& model) {
  Step& step = step_of(model, DType::fp32);
  step.prepare();
  std::map<std::string, double> spent_ns;
  double total_ns = 0;
  matmul_ns = 0;
  for (auto _ : state) {
    for (const BoundOp& bound : step.ops()) {
      const double start = thread_cpu_ns();
      if (std::holds_alternative<Attention>(bound.op.kind)) {
        run_timed<Attention>(bound);
      } else if (std::holds_alternative<AttentionGradient>(bound.op.kind)) {
        run_timed<AttentionGradient>(bound);
      } else {
        bound.run();
      }
      const double spent = thread_cpu_ns() - start;
      spent_ns[name_of(bound.op)] += spent;
      total_ns += spent;
      if (std::holds_alternative<Matmul>(bound.op.kind)) matmul_ns += spent;
    }
  }
  for (const auto& [name, ns] : spent_ns) state.counters[name] = 100 * ns / total_ns;
  state.counters["row"] = 100 * (total_ns - matmul_ns) / total_ns;
}

void run_ceiling(benchmark::State& state, double (*measure)(), const char* unit) {
  double best = 0;
  for (auto _ : state) best = std::max(best, measure());
  state.counters[unit] = best;
}

void register_all() {
  using benchmark::RegisterBenchmark;
  const auto ceiling = [](const char* name, double (*measure)(), const char* unit) {
    RegisterBenchmark(name, run_ceiling, measure, unit)->Iterations(1);
  };
  ceiling(
      "ceiling/fma/fp32", [] { return measure_fma_gflops(DType::fp32); }, "GFLOP_per_s");
  ceiling(
      "ceiling/fma/fp64", [] { return measure_fma_gflops(DType::fp64); }, "GFLOP_per_s");
  ceiling("ceiling/triad", measure_triad_gb_per_s, "GB_per_s");
  ceiling(
      "ceiling/matmul/fp32", [] { return matmul_ceiling(step_of("gpt", DType::fp32)); },
      "GFLOP_per_s");
  for (const std::string model : {"gpt", "llama"}) {
    RegisterBenchmark(cat("step_ops/", model).c_str(), run_step, model, DType::fp32)
        ->Unit(benchmark::kMillisecond);
    RegisterBenchmark(cat("step_shares/", model).c_str(), run_shares, model)
        ->Unit(benchmark::kMillisecond);
    std::set<std::string> seen;
    for (const BoundOp& bound : step_of(model, DType::fp32).ops()) {
      const std::string text = to_text(bound.op);
      if (!seen.insert(text).second) continue;
      std::string name = cat("op/", model, "/", text);
      std::replace(name.begin(), name.end(), ' ', '_');
      RegisterBenchmark(name.c_str(), run_op, model, DType::fp32, text)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) {
  return mb::run_benchmarks(argc, argv, [](const std::vector<std::string>& arguments) {
    mb::require(arguments.empty(), "ops_bench takes --benchmark_* flags only, not ",
                arguments.empty() ? "" : arguments.front());
    mb::register_all();
  });
}
