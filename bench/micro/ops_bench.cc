// Benchmarks of operations on one core: every operation of a training step at its shape, whole
// steps, and what the core can do at best. Rates are per CPU time of the thread.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/micro/bench_main.h"
#include "workloads/base/error.h"
#include "workloads/base/rng.h"
#include "workloads/model/config.h"
#include "workloads/model/layers.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/peak.h"

namespace mb {
namespace {

struct BoundOp {
  Op op;
  std::vector<const void*> reads;
  std::vector<void*> writes;
  void run() const { run_cpu_op(op, {}, reads, writes); }
};

// Tensors by name, made on first use, in memory like that of a CPU device: aligned, large ones in
// huge pages. Memory is not touched before fill().
class Memory {
 public:
  void* tensor(const std::string& name, DType dtype, std::int64_t elements) {
    Tensor& tensor = tensors_[name];
    if (!tensor.data) {
      const std::size_t bytes = elements * size_of(dtype);
      const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
      const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
      tensor = {dtype, elements, Data(std::aligned_alloc(alignment, size))};
      require(tensor.data != nullptr, "no memory for ", name);
      if (alignment == kHugePage) madvise(tensor.data.get(), size, MADV_HUGEPAGE);
    }
    return tensor.data.get();
  }

  // Small random numbers, or token ids below `vocabulary`. Does nothing the second time.
  void fill(std::int64_t vocabulary) {
    if (filled_) return;
    filled_ = true;
    for (auto& [name, tensor] : tensors_) {
      const std::uint64_t stream = stream_of(name);
      void* data = tensor.data.get();
      for (std::int64_t i = 0; i < tensor.elements; ++i) {
        const double value = random_uniform(1, stream, i);
        switch (tensor.dtype) {
          case DType::int32:
            static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value * vocabulary);
            break;
          case DType::fp32:
            static_cast<float*>(data)[i] = static_cast<float>(0.04 * value);
            break;
          default:
            static_cast<double*>(data)[i] = 0.04 * value;
        }
      }
    }
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  using Data = std::unique_ptr<void, Free>;
  struct Tensor {
    DType dtype;
    std::int64_t elements;
    Data data;
  };
  std::map<std::string, Tensor> tensors_;
  bool filled_ = false;
};

// The operations of one step on one rank, in order, without loading tokens.
class Step {
 public:
  Step(const ModelConfig& model, std::int64_t batch, DType dtype)
      : vocabulary_(model.vocabulary), dtype_(dtype) {
    const BlockShape shape{.batch = batch, .dtype = dtype};
    std::vector<Block> blocks = {embedding_block(model, shape, false, model.tied)};
    for (int layer = 0; layer < model.layers; ++layer) {
      blocks.push_back(layer_block(model, shape, layer, false));
    }
    blocks.push_back(head_block(model, shape, false));
    const int last = static_cast<int>(blocks.size()) - 1;
    for (int i = 0; i <= last; ++i) bind(blocks[i], blocks[i].forward, i);
    for (int i = last; i >= 0; --i) bind(blocks[i], blocks[i].backward, i);
    for (const Block& block : blocks) collect_parameters(block);
    for (const auto& [name, n] : parameters_) {
      add(SumSquares{n, false}, {tensor("d." + name, n), scalars()}, {scalars()});
    }
    for (const auto& [name, n] : parameters_) {
      const std::vector<void*> state = {tensor(name, n), tensor("m." + name, n),
                                        tensor("v." + name, n)};
      add(AdamW{n, 1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0},
          {tensor("d." + name, n), scalars(), state[0], state[1], state[2]}, state);
    }
  }

  // Must come before any of ops() runs.
  void prepare() { memory_.fill(vocabulary_); }
  const std::vector<BoundOp>& ops() const { return ops_; }
  double flops_per_step() const {
    double sum = 0;
    for (const BoundOp& bound : ops_) sum += flops(bound.op);
    return sum;
  }

 private:
  void* tensor(const std::string& name, std::int64_t n) { return memory_.tensor(name, dtype_, n); }
  void* scalars() { return memory_.tensor("scalars", DType::fp64, kScalars); }
  void add(const OpKind& kind, std::vector<const void*> reads, std::vector<void*> writes) {
    ops_.push_back({{kind, dtype_}, std::move(reads), std::move(writes)});
  }

  // Activations live as long as the step; temporaries, and gradients between blocks, are shared.
  static std::string name_in(const Block& block, const BlockTensor& tensor, int index) {
    switch (tensor.role) {
      case Role::input:
        return cat("x", index - 1);
      case Role::output:
        return cat("x", index);
      case Role::d_input:
        return cat("dx", (index - 1) % 2);
      case Role::d_output:
        return cat("dx", index % 2);
      case Role::activation:
        return cat("block", index, ".", tensor.name);
      case Role::parameter:
        return block.parameters[tensor.parameter].name;
      case Role::gradient:
        return "d." + block.parameters[tensor.parameter].name;
      default:
        return tensor.name;
    }
  }

  void bind(const Block& block, const std::vector<BlockStep>& steps, int index) {
    const auto address = [&](int t) {
      const BlockTensor& tensor = block.tensors[t];
      return memory_.tensor(name_in(block, tensor, index), tensor.dtype, tensor.elements);
    };
    for (const BlockStep& step : steps) {
      BoundOp bound{std::get<Op>(step.what), {}, {}};
      for (int t : step.reads) bound.reads.push_back(address(t));
      for (int t : step.writes) bound.writes.push_back(address(t));
      ops_.push_back(std::move(bound));
    }
  }

  void collect_parameters(const Block& block) {
    for (const ParameterSpec& spec : block.parameters) {
      parameters_[spec.name] = spec.local_elements();
    }
  }

  Memory memory_;
  std::int64_t vocabulary_;
  DType dtype_;
  std::vector<BoundOp> ops_;
  std::map<std::string, std::int64_t> parameters_;
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
  for (const BoundOp& bound : step.ops()) bound.run();
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
  for (const BoundOp& bound : step.ops()) bound.run();
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
