#include "bench/cli/peak.h"

#include <sched.h>

#include <algorithm>

#include "bench/cli/ranks.h"
#include "workloads/base/error.h"
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

}  // namespace

Peak peak_of(const Case& c) {
  if (c.mode == Mode::sim) {
    return {c.mesh.world(), c.machine.peak_tflops(c.options.dtype) * 1e12,
            cat("datasheet of ", c.machine.name, ", ",
                c.options.dtype == DType::fp32 ? "fp32 as TF32 where it has tensor cores"
                                               : name_of(c.options.dtype),
                ", dense")};
  }
  if (on_cuda(c.mode))
    return {c.mesh.world(), std::nullopt, "the matmul rate of this GPU is not measured"};
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
