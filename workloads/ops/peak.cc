// Ceilings of one core.
#include "workloads/ops/peak.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/launch.h"

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

double measure_matmul_gflops(const Matmul& matmul, DType dtype) {
  const Op op{matmul, dtype};
  const auto zeros = [&](std::int64_t elements) {
    return std::vector<char>(elements * size_of(dtype));
  };
  const auto a = zeros(matmul.m * matmul.k), b = zeros(matmul.k * matmul.n), bias = zeros(matmul.n);
  auto c = zeros(matmul.m * matmul.n);
  const std::array<const void*, 3> reads = {a.data(), b.data(), bias.data()};
  const std::array<void*, 1> writes = {c.data()};
  const auto run = [&] {
    run_cpu_op(op, {}, reads, writes);
    return flops(op);
  };
  run();
  const double one_ns = std::max(1.0, flops(op) / best_per_ns(2, run));
  return best_per_ns(std::clamp(static_cast<int>(1e8 / one_ns), 3, 1000), run);
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
