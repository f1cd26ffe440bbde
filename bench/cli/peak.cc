#include "bench/cli/peak.h"

#include <sched.h>

#include <algorithm>

#include "workloads/base/error.h"
#include "workloads/ops/peak.h"

namespace mb {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Peak peak_of(const Case& c) {
  if (c.mode == Mode::sim) {
    return {c.mesh.world(), c.machine.peak_tflops(c.options.dtype) * 1e12,
            cat("datasheet of ", c.machine.name, ", ",
                c.options.dtype == DType::fp32 ? "fp32 as TF32 where it has tensor cores"
                                               : name_of(c.options.dtype),
                ", dense")};
  }
  return {std::min(c.mesh.world(), usable_cores()), measure_fma_gflops(c.options.dtype) * 1e9,
          cat(name_of(c.options.dtype), " multiply-add rate of one core, measured before the run")};
}

}  // namespace mb
