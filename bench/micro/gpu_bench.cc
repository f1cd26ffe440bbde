// What GPUs can do at best, beside the datasheet of the machine that has such: products by dtype
// and shape and copies of the current one, and collectives of all by NCCL.
#include <benchmark/benchmark.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/cli/link_rates.h"
#include "bench/micro/bench_main.h"
#include "bench/micro/measured_point.h"
#include "parallel/cost/machine.h"
#include "parallel/device/cuda_device.h"
#include "workloads/base/error.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {
namespace {

struct Gemm {
  DType dtype;
  bool tf32;
  GemmShape shape;
};

std::string name_of(const Gemm& gemm) {
  return cat("gemm/", gemm.tf32 ? "tf32" : mb::name_of(gemm.dtype), "/", gemm.shape.m, "x",
             gemm.shape.n, "x", gemm.shape.k);
}

// Of products as cuBLASLt counts them. Machines give the fp32 rate of tensor cores, which is
// TF32's.
double datasheet_flops(const std::optional<Machine>& machine, const Gemm& gemm) {
  if (!machine || (gemm.dtype == DType::fp32 && !gemm.tf32)) return 0;
  return machine->peak_tflops(gemm.dtype) * 1e12;
}

// Where no speed is told, the way is all that counts.
GpuEffort effort() {
  return why_no_speed() ? GpuEffort{.warm_up_ms = 0, .try_ms = 0, .tries = 1} : GpuEffort{};
}
std::int64_t scaled(std::int64_t size, std::int64_t divisor) {
  return why_no_speed() ? size / divisor : size;
}
void leave_out(benchmark::State& state) { state.SetLabel(cat("not told: ", why_no_speed())); }

// Calls `measure`, which returns a rate, and shows it beside the datasheet's, unless that is 0. An
// Error fails this benchmark alone.
template <class Measure>
void show(benchmark::State& state, const char* unit, double scale, double datasheet,
          Measure measure) {
  double rate = 0;
  try {
    for (auto _ : state) rate = measure();
  } catch (const Error& error) {
    return fail(state, error.what());
  }
  if (why_no_speed()) return leave_out(state);
  state.counters[unit] = rate / scale;
  if (datasheet > 0) state.counters["of_datasheet"] = rate / datasheet;
}

// Bus bandwidth, so that it compares with a link whatever the collective and the number of GPUs.
void show_collective(benchmark::State& state, const std::string& operation, int gpus,
                     const std::optional<Machine>& machine) {
  std::optional<PointSummary> summary;
  try {
    for (auto _ : state) {
      if (gpus < 2) continue;
      std::vector<std::string> words = large_collective(cat("dp", gpus), "nccl+threads");
      words.push_back(cat("op=", operation));
      const CollCase c = parse_coll_case(words);
      summary = measured_point(c, tables_of(c).front().front(),
                               {.mode = std::string(name_of(c.mode)), .machine = machine});
    }
  } catch (const Error& error) {
    return fail(state, error.what());
  }
  if (!summary) return state.SetLabel("not defined: one GPU has nobody to talk to");
  if (why_no_speed()) return leave_out(state);
  const GroupSummary& slowest_group = slowest(*summary);
  state.counters["busbw_GB_per_s"] = *slowest_group.busbw / 1e9;
  if (slowest_group.expected.fraction)
    state.counters["of_datasheet"] = *slowest_group.expected.fraction;
}

void register_all(const std::optional<Machine>& machine) {
  const auto add = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  };
  std::vector<Gemm> gemms;
  for (std::int64_t n : {4096, 8192}) {
    for (DType dtype : {DType::bf16, DType::fp16}) gemms.push_back({dtype, false, {n, n, n}});
    gemms.push_back({DType::fp32, true, {n, n, n}});
  }
  for (DType dtype : {DType::fp32, DType::fp64})
    gemms.push_back({dtype, false, {4096, 4096, 4096}});
  // A layer of hidden 4096, 2048 tokens at once.
  for (const auto& [n, k] : {std::pair{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}})
    gemms.push_back({DType::bf16, false, {2048, n, k}});
  for (Gemm& gemm : gemms) {
    for (std::int64_t* size : {&gemm.shape.m, &gemm.shape.n, &gemm.shape.k})
      *size = scaled(*size, 128);
    const double datasheet = datasheet_flops(machine, gemm);
    add(name_of(gemm), [=](benchmark::State& state) {
      show(state, "TFLOP_per_s", 1e12, datasheet,
           [&] { return measure_gemm(gemm.dtype, gemm.tf32, gemm.shape, effort()); });
    });
  }
  const std::int64_t bytes = scaled(std::int64_t{1} << 30, 1 << 10);
  const auto copy = [&](const char* name, double GpuCopyRates::*kind, double datasheet) {
    add(cat("copy/", name), [=](benchmark::State& state) {
      show(state, "GB_per_s", 1e9, datasheet,
           [&] { return measure_copies(bytes, effort()).*kind; });
    });
  };
  copy("within", &GpuCopyRates::within, machine ? machine->memory_gb_per_s * 1e9 : 0);
  copy("to_device", &GpuCopyRates::to_device, 0);
  copy("to_host", &GpuCopyRates::to_host, 0);
  const int gpus = cuda_devices();
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}) {
    add(cat("collective/", operation, "/", gpus, gpus == 1 ? "_gpu" : "_gpus"),
        [=](benchmark::State& state) { show_collective(state, operation, gpus, machine); });
  }
}

}  // namespace
}  // namespace mb

int main(int argc, char** argv) {
  return mb::run_benchmarks(argc, argv, [](const std::vector<std::string>& arguments) {
    mb::require(arguments.empty(), "gpu_bench takes --benchmark_* flags only, not ",
                arguments.empty() ? "" : arguments.front());
    const std::string gpu = mb::gpu_name();
    const std::optional<mb::Machine> machine = mb::datasheet_of(gpu);
    benchmark::AddCustomContext("meshbench_gpu", gpu);
    benchmark::AddCustomContext("meshbench_datasheet", machine ? machine->name : "none is known");
    mb::register_all(machine);
  });
}
