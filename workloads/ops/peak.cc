// Ceilings of one core.
#include "workloads/ops/peak.h"

#include <time.h>

#include <algorithm>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/ops/cpu_isa.h"

namespace mb {
namespace {

// Most of what work() returns, per nanosecond, of `tries` runs: GFLOP/s or GB/s.
template <class Work>
double best_per_ns(int tries, Work work) {
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    const auto start = static_cast<double>(thread_cpu_ns());
    const double done = work();
    best = std::max(best, done / std::max(1.0, static_cast<double>(thread_cpu_ns()) - start));
  }
  return best;
}

}  // namespace

std::int64_t thread_cpu_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

double measure_fma_gflops(DType dtype) {
  require(dtype == DType::fp32 || dtype == DType::fp64,
          "a core's peak is measured in fp32 or fp64, not ", name_of(dtype));
  const CpuKernels& kernels = cpu_kernels();
  const auto run = dtype == DType::fp32 ? kernels.multiply_add_fp32 : kernels.multiply_add_fp64;
  return best_per_ns(10, [&] { return run(1'500'000); });
}

double measure_triad_gb_per_s() {
  const std::size_t n = std::size_t{8} << 20;
  std::vector<float> a(n, 0.0f), b(n, 1.0f), c(n, 2.0f);
  const auto triad = [&] {
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + 0.5f * c[i];
    asm volatile("" : : "r"(a.data()) : "memory");
    return 12.0 * n;
  };
  return best_per_ns(5, triad);
}

}  // namespace mb
