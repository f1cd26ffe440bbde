// What a kernel of a CUDA stream gets beside its operation. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/base/half.h"
#include "workloads/ops/cuda_counts.h"
#include "workloads/ops/cuda_launch.h"
#include "workloads/ops/cuda_matmul.h"
#include "workloads/ops/cuda_scratch.h"
#include "workloads/ops/fused_attention.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/operands.h"

namespace mb::cuda {

template <class T>
struct Call {
  const OpContext& context;
  const void* const* reads;
  void* const* writes;
  cudaStream_t stream;
  MatmulLibrary& matmul;
  Scratch& scratch;
  HostCounts& counts;
  FusedAttention* fused;  // null: attention is tiles of products
  bool prepares;          // nothing runs, scratch is sized
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::fp32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::fp64;
}
template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<Fp16>() {
  return DType::fp16;
}

// launch_rows, launch_parts and launch_elements of a call that runs; else their kernels are loaded.
template <class T, class Body>
void rows(const Call<T>& call, std::int64_t count, const Body& body) {
  call.prepares ? load_rows<Body>() : launch_rows(call.stream, count, body);
}
template <class T, class F>
void parts(const Call<T>& call, std::int64_t count, const F& f) {
  call.prepares ? load_rows<Parts<F>>() : launch_parts(call.stream, count, f);
}
template <class T, class F>
void elements(const Call<T>& call, std::int64_t count, const F& f) {
  call.prepares ? load_rows<Parts<Elements<F>>>() : launch_elements(call.stream, count, f);
}
template <class T>
void multiply(const Call<T>& call, const Product& product, const void* a, const void* b,
              const void* bias, void* c) {
  if (!call.prepares) call.matmul.run(call.stream, product, a, b, bias, c);
}
template <class T, class U>
void fill_zero(const Call<T>& call, U* to, std::int64_t n) {
  if (!call.prepares) check(cudaMemsetAsync(to, 0, sizeof(U) * n, call.stream), "cudaMemsetAsync");
}

}  // namespace mb::cuda
