// What GPUs can do at best, beside the datasheet of the machine that has such: products by dtype
// and shape and copies of the current one, and collectives of all by NCCL.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "bench/micro/bench_main.h"
#include "bench/micro/measured_point.h"
#include "parallel/cost/machine.h"
#include "parallel/device/cuda_device.h"
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

// Large enough for a collective to be bound by links alone; every rank has it twice, on its GPU and
// for the check on the host. Where no speed is told, the way is all that counts.
CollCase collective_case(const std::string& operation, int gpus) {
  std::vector<std::string> words = {cat("op=", operation), cat("mesh=dp", gpus),
                                    "mode=nccl+threads", "in_place=out"};
  if (why_no_speed()) {
    words.insert(words.end(), {"size=64K", "time_cap=1ms", "iterations=4,4", "warm_up=0"});
  } else {
    words.insert(words.end(), {"size=256M", "time_cap=1s"});
  }
  return parse_coll_case(words);
}

// Bus bandwidth, so that it compares with a link whatever the collective and the number of GPUs.
void show_collective(benchmark::State& state, const std::string& operation, int gpus,
                     const std::optional<Machine>& machine) {
  std::optional<PointSummary> summary;
  try {
    for (auto _ : state) {
      if (gpus < 2) continue;
      const CollCase c = collective_case(operation, gpus);
      summary = measured_point(c, tables_of(c).front().front(),
                               {.mode = std::string(name_of(c.mode)), .machine = machine});
    }
  } catch (const Error& error) {
    return fail(state, error.what());
  }
  if (!summary) return state.SetLabel("not defined: one GPU has nobody to talk to");
  if (why_no_speed()) return state.SetLabel(cat("not told: ", why_no_speed()));
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
