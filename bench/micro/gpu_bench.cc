// What the current GPU can do at best, by dtype and shape: products and copies, beside the
// datasheet of the machine that has such GPUs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "bench/micro/bench_main.h"
#include "parallel/cost/machine.h"
#include "workloads/base/error.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {
namespace {

// "h100x8" of "NVIDIA H100 80GB HBM3".
std::optional<Machine> datasheet_of(std::string gpu) {
  std::transform(gpu.begin(), gpu.end(), gpu.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Machine& machine : machines()) {
    const std::string model = machine.name.substr(0, machine.name.find('x'));
    if (model != "cpu" && gpu.find(model) != std::string::npos) return machine;
  }
  return std::nullopt;
}

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
  state.counters[unit] = rate / scale;
  if (datasheet > 0) state.counters["of_datasheet"] = rate / datasheet;
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
  for (const Gemm& gemm : gemms) {
    const double datasheet = datasheet_flops(machine, gemm);
    add(name_of(gemm), [=](benchmark::State& state) {
      show(state, "TFLOP_per_s", 1e12, datasheet,
           [&] { return measure_gemm(gemm.dtype, gemm.tf32, gemm.shape); });
    });
  }
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  const auto copy = [&](const char* name, double GpuCopyRates::*kind, double datasheet) {
    add(cat("copy/", name), [=](benchmark::State& state) {
      show(state, "GB_per_s", 1e9, datasheet, [&] { return measure_copies(bytes).*kind; });
    });
  };
  copy("within", &GpuCopyRates::within, machine ? machine->memory_gb_per_s * 1e9 : 0);
  copy("to_device", &GpuCopyRates::to_device, 0);
  copy("to_host", &GpuCopyRates::to_host, 0);
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
