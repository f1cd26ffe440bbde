// Ceilings of one core and of memory.
#include "workloads/ops/peak.h"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
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

std::int64_t clock_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs work(thread) on `threads` threads.
template <class Work>
void on_threads(int threads, Work work) {
  std::vector<std::thread> running;
  for (int thread = 1; thread < threads; ++thread) running.emplace_back(work, thread);
  work(0);
  for (std::thread& thread : running) thread.join();
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

Bandwidth::Bandwidth(int threads, std::int64_t array_bytes) {
  require(threads >= 1, "bandwidth is measured by one thread or more, not ", threads);
  require(array_bytes / threads >= 64, "an array of ", array_bytes, " bytes for ", threads,
          " threads: give 64 or more for each");
  part_elements_ = array_bytes / threads / 64 * 16;
  parts_.resize(threads);
  on_threads(threads, [&](int thread) {
    for (Pages& part : parts_[thread]) {
      part = Pages(part_elements_ * static_cast<std::int64_t>(sizeof(float)));
      part.prefault();
    }
  });
}

double Bandwidth::gb_per_s(Pattern pattern, Stores stores, int tries) const {
  require(tries >= 1, "bandwidth wants one try or more, not ", tries);
  const CpuKernels& kernels = cpu_kernels();
  const StreamFunction run =
      (pattern == Pattern::triad ? kernels.triad : kernels.stream_copy)[static_cast<int>(stores)];
  const int threads = static_cast<int>(parts_.size());
  const std::int64_t array_bytes = threads * part_elements_ * std::int64_t{sizeof(float)};
  const std::int64_t passes = std::max<std::int64_t>(1, (std::int64_t{64} << 20) / array_bytes);
  std::vector<std::int64_t> times;  // at the start of each try and at its end
  times.reserve(2 * tries);
  std::barrier meet(threads, [&]() noexcept { times.push_back(clock_ns()); });
  on_threads(threads, [&](int thread) {
    const auto& [a, b, c] = parts_[thread];
    for (int i = 0; i < tries; ++i) {
      meet.arrive_and_wait();
      for (std::int64_t pass = 0; pass < passes; ++pass)
        run(a.as<float>(), b.as<float>(), c.as<float>(), part_elements_);
      meet.arrive_and_wait();
    }
  });
  std::vector<double> rates;
  const double bytes = (pattern == Pattern::triad ? 3.0 : 2.0) * array_bytes * passes;
  for (int i = 0; i < tries; ++i)
    rates.push_back(
        bytes / static_cast<double>(std::max<std::int64_t>(1, times[2 * i + 1] - times[2 * i])));
  std::nth_element(rates.begin(), rates.begin() + tries / 2, rates.end());
  return rates[tries / 2];
}

}  // namespace mb
