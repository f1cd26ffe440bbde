// The one place that launches row kernels: a block of threads a row on a GPU. Compiled for the
// host, the same bodies run row after row on a stream of tests/support/cuda_emulation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "workloads/base/cuda_check.h"
#include "workloads/base/host_device.h"
#include "workloads/ops/team.h"

#if !defined(__CUDACC__)
#include <functional>
#endif

namespace mb::cuda {

#if defined(__CUDACC__)

inline constexpr int kThreads = 256, kWarp = 32;

// The threads of a block share a row. All must come to every call, and all get its result.
struct BlockTeam {
  template <class F>
  __device__ void for_each(std::int64_t n, F f) const {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) f(i);
    __syncthreads();
  }
  template <class A, class F>
  __device__ A sum(std::int64_t n, F f) const {
    A own = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) own += f(i);
    return combine(own, [](A a, A b) { return a + b; });
  }
  template <class A, class F>
  __device__ A max(std::int64_t n, F f) const {
    A own = -static_cast<A>(__builtin_inff());
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const A x = f(i);
      own = own < x ? x : own;
    }
    return combine(own, [](A a, A b) { return a < b ? b : a; });
  }

 private:
  // In an order that depends on nothing but the number of threads.
  template <class A, class Combine>
  static __device__ A combine(A own, Combine two) {
    __shared__ A of_warp[kThreads / kWarp];
    for (int lane = kWarp / 2; lane > 0; lane /= 2)
      own = two(own, __shfl_xor_sync(0xffffffffu, own, lane));
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = own;
    __syncthreads();
    A all = of_warp[0];
    for (int w = 1; w < kThreads / kWarp; ++w) all = two(all, of_warp[w]);
    __syncthreads();
    return all;
  }
};

template <class Body>
__global__ void __launch_bounds__(kThreads) rows_kernel(std::int64_t rows, Body body) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(BlockTeam{}, row);
}

template <class Body>
void launch_rows(cudaStream_t stream, std::int64_t rows, const Body& body) {
  if (rows == 0) return;
  const std::int64_t most = 1 << 20;
  rows_kernel<<<static_cast<unsigned>(rows < most ? rows : most), kThreads, 0, stream>>>(rows,
                                                                                         body);
  check(cudaGetLastError(), "kernel launch");
}

#else

// Of tests/support/cuda_emulation: runs `work` in the order of the stream, on its thread.
cudaError_t emulate_launch(cudaStream_t stream, std::function<void()> work);

template <class Body>
void launch_rows(cudaStream_t stream, std::int64_t rows, const Body& body) {
  check(emulate_launch(stream,
                       [rows, body] {
                         for (std::int64_t row = 0; row < rows; ++row) body(SerialTeam{}, row);
                       }),
        "kernel launch");
}

#endif

// f(i) for each of n elements, in rows of as many as make a block busy.
template <class F>
struct Elements {
  static constexpr std::int64_t kRow = 2048;
  std::int64_t n;
  F f;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t begin = row * kRow, left = n - begin;
    team.for_each(left < kRow ? left : kRow, [=, *this](std::int64_t i) { f(begin + i); });
  }
};
template <class F>
void launch_elements(cudaStream_t stream, std::int64_t n, const F& f) {
  launch_rows(stream, (n + Elements<F>::kRow - 1) / Elements<F>::kRow, Elements<F>{n, f});
}

}  // namespace mb::cuda
