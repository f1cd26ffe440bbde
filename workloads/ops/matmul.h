// The matrix product below `Matmul` operations and attention tiles, with explicit leading
// dimensions, and its two backends.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "workloads/base/half.h"
#include "workloads/ops/op.h"

namespace mb {

// c = a b (+ bias on each row) (+ c), as `Matmul` in op.h; leading dimensions are in elements, of
// the matrix as stored.
struct MatmulShape {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  auto operator<=>(const MatmulShape&) const = default;
};
inline MatmulShape shape_of(const Matmul& op) {
  return {.m = op.m,
          .n = op.n,
          .k = op.k,
          .lda = op.transpose_a ? op.m : op.k,
          .ldb = op.transpose_b ? op.k : op.n,
          .ldc = op.n,
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .bias = op.bias,
          .accumulate = op.accumulate};
}

template <class T>
using MatmulFunction = void (*)(const MatmulShape& shape, const T* a, const T* b, const T* bias,
                                T* c);

// On 16-bit operands; c is fp32 if `to_main`.
template <class T>
using HalfMatmulFunction = void (*)(const MatmulShape& shape, const T* a, const T* b, const T* bias,
                                    void* c, bool to_main);

// oneDNN's matmul on the calling thread alone; primitives are kept per thread. The stub of a build
// without oneDNN is never available and throws Error.
bool onednn_available();
std::string onednn_version();  // "oneDNN 2.6.3"
void onednn_matmul(const MatmulShape& shape, const float* a, const float* b, const float* bias,
                   float* c);
// For processors with instructions for it, Zen 4 for example: twice as fast as fp32.
bool onednn_has_bf16();
void onednn_matmul_bf16(const MatmulShape& shape, const Bf16* a, const Bf16* b, const Bf16* bias,
                        void* c, bool to_main);

}  // namespace mb
