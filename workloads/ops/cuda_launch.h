// The one place that launches row kernels: a block of threads a row on a GPU. Compiled for the
// host, the same bodies run row after row on a stream of tests/support/cuda_emulation, by one lane
// that takes elements in packs as a block's do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "workloads/base/cuda_check.h"
#include "workloads/base/host_device.h"
#include "workloads/ops/pack.h"
#include "workloads/ops/team.h"

#if !defined(__CUDACC__)
#include <functional>
#endif

namespace mb::cuda {

#if defined(__CUDACC__)

inline constexpr int kThreads = 256, kWarp = 32;

// The threads of a block share a row. All must come to every call, and all get its result. Rows of
// less than a warp of packs go by one element: more threads then have something to do.
struct BlockTeam {
  template <class F, class... T>
  __device__ void for_each(std::int64_t n, F f, T*... at) const {
    visit_lane<kThreads, kWarp>(threadIdx.x, n, f, at...);
    __syncthreads();
  }
  template <int kWidth, class F>
  __device__ void for_each_pack(std::int64_t n, bool wide, F f) const {
    visit_packs<kThreads, kWidth>(threadIdx.x, n, wide, f);
    __syncthreads();
  }
  template <class A, class F, class... T>
  __device__ A sum(std::int64_t n, F f, T*... at) const {
    return combine(sum_of_lane<A, kThreads, kWarp>(threadIdx.x, n, f, at...),
                   [](A a, A b) { return a + b; });
  }
  template <class A, class F, class... T>
  __device__ A max(std::int64_t n, F f, T*... at) const {
    return combine(max_of_lane<A, kThreads, kWarp>(threadIdx.x, n, f, at...),
                   [](A a, A b) { return a < b ? b : a; });
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

// Brings a kernel onto the device. At its first launch that may wait for all that runs there, also
// for a collective that waits for a rank which loads kernels in turn (CUDA C++ Programming Guide,
// "Lazy Loading").
template <class Body>
void load_rows() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&rows_kernel<Body>)),
        "cudaFuncGetAttributes of a kernel");
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

// A block of one lane, for which two packs are enough.
struct OneLane {
  template <class F, class... T>
  void for_each(std::int64_t n, F f, T*... at) const {
    visit_lane<1, 2>(0, n, f, at...);
  }
  template <int kWidth, class F>
  void for_each_pack(std::int64_t n, bool wide, F f) const {
    visit_packs<1, kWidth>(0, n, wide, f);
  }
  template <class A, class F, class... T>
  A sum(std::int64_t n, F f, T*... at) const {
    return sum_of_lane<A, 1, 2>(0, n, f, at...);
  }
  template <class A, class F, class... T>
  A max(std::int64_t n, F f, T*... at) const {
    return max_of_lane<A, 1, 2>(0, n, f, at...);
  }
};

// Of tests/support/cuda_emulation: runs `work` in the order of the stream, on its thread.
cudaError_t emulate_launch(cudaStream_t stream, std::function<void()> work);

template <class Body>
void load_rows() {}

template <class Body>
void launch_rows(cudaStream_t stream, std::int64_t rows, const Body& body) {
  check(emulate_launch(stream,
                       [rows, body] {
                         for (std::int64_t row = 0; row < rows; ++row) body(OneLane{}, row);
                       }),
        "kernel launch");
}

#endif

// f(team, first, count) for parts of n elements, each as many as make a block busy.
template <class F>
struct Parts {
  static constexpr std::int64_t kPart = 2048;
  std::int64_t n;
  F f;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t part) const {
    const std::int64_t first = part * kPart, left = n - first;
    f(team, first, left < kPart ? left : kPart);
  }
};
template <class F>
void launch_parts(cudaStream_t stream, std::int64_t n, const F& f) {
  launch_rows(stream, (n + Parts<F>::kPart - 1) / Parts<F>::kPart, Parts<F>{n, f});
}

// f(i) for each of n elements.
template <class F>
struct Elements {
  F f;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t first, std::int64_t count) const {
    team.for_each(count, [=, *this](std::int64_t i) { f(first + i); });
  }
};
template <class F>
void launch_elements(cudaStream_t stream, std::int64_t n, const F& f) {
  launch_parts(stream, n, Elements<F>{f});
}

}  // namespace mb::cuda
