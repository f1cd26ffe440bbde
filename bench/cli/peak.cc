#include "bench/cli/peak.h"

#include <sched.h>

#include <algorithm>

#include "bench/cli/ranks.h"
#include "parallel/device/cuda_device.h"
#include "workloads/base/error.h"
#include "workloads/ops/cuda_peak.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/peak.h"

namespace mb {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

namespace {

// Of the machines of mode=mpi all cores count, as launchers bind each rank to some.
int cores_of(const Case& c) {
  return on_mpi(c.mode) ? mpi_world().cores() : std::min(c.mesh.world(), usable_cores());
}

// GPUs that the ranks are on, as every machine has as many as this one.
int gpus_of(const Case& c) {
  const int here = cuda_devices();
  if (!on_mpi(c.mode)) return std::min(c.mesh.world(), here);
  int gpus = 0;
  for (const MpiWorld::Host& host : mpi_world().hosts()) gpus += std::min(host.ranks, here);
  return gpus;
}

// By a product that is large enough for any GPU.
Peak gpu_peak(const Case& c) {
  const DType dtype = c.options.dtype;
  const std::int64_t n = size_of(dtype) == 2 ? 8192 : 4096;
  Peak peak{c.mesh.world(), std::nullopt, ""};
  try {
    peak.devices = gpus_of(c);
    require(!why_no_speed(), "this is ", why_no_speed());
    peak.flops_per_s = measure_gemm(dtype, c.tf32, {n, n, n});
    peak.source = cat(c.tf32 ? "tf32" : name_of(dtype), " product of ", n, "x", n, "x", n,
                      " by cuBLASLt, measured on the first GPU before the run");
  } catch (const Error& error) {
    peak.source = cat("the matmul rate of this GPU is not measured: ", error.what());
  }
  return peak;
}

}  // namespace

Peak peak_of(const Case& c) {
  if (c.mode == Mode::sim) {
    return {c.mesh.world(), c.machine.peak_tflops(c.options.dtype) * 1e12,
            cat("datasheet of ", c.machine.name, ", ",
                c.options.dtype == DType::fp32 ? "fp32 as TF32 where it has tensor cores"
                                               : name_of(c.options.dtype),
                ", dense")};
  }
  if (on_cuda(c.mode)) return gpu_peak(c);
  const int devices = cores_of(c);
  const DType dtype = c.options.dtype, main = main_dtype(dtype);
  if (dtype != main && !matmul_backend(dtype).ends_with(" in fp32"))
    return {devices, std::nullopt,
            cat("the ", name_of(dtype), " rate of this core's matrix units is not measured")};
  return {devices, measure_fma_gflops(main) * 1e9,
          cat(name_of(main), " multiply-add rate of one core, measured before the run",
              dtype == main ? "" : ", as 16-bit matmuls run in fp32 here")};
}

}  // namespace mb
