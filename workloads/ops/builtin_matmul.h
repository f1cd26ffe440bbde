// Blocked matrix product in vector extensions: operands are packed into panels that a kernel with
// kRows x kColumns<T> accumulators runs over (Goto and van de Geijn, 2008). Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/ops/matmul.h"
#include "workloads/ops/scratch.h"

namespace mb {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 12;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRows = 6;
#else
constexpr int kVectorBytes = 16, kRows = 4;
#endif
constexpr int kVectors = 2;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int kColumns = kVectors* kLanes<T>;

// Block sizes: a panel of B stays in L1, a block of A in L2, a block of B in L3.
template <class T>
constexpr std::int64_t kDepthBlock = 1536 / sizeof(T);
constexpr std::int64_t kRowBlock = 144;
constexpr std::int64_t kColumnBlock = 2048;

static inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
static inline std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

// Panels of kWidth rows (or columns) of a [count, depth] matrix: element (i, k) of a panel goes to
// k * kWidth + i. Missing rows become zero. Element (i, k) stands at source[i * stride_i + k *
// stride_k].
template <int kWidth, class T>
static void pack(const T* source, std::int64_t stride_i, std::int64_t stride_k, std::int64_t count,
                 std::int64_t depth, T* packed) {
  for (std::int64_t first = 0; first < count; first += kWidth, packed += kWidth * depth) {
    const T* panel = source + first * stride_i;
    const int width = static_cast<int>(smaller(kWidth, count - first));
    if (width < kWidth) __builtin_memset(packed, 0, sizeof(T) * kWidth * depth);
    if (stride_i == 1) {
      for (std::int64_t k = 0; k < depth; ++k) {
        for (int i = 0; i < width; ++i) packed[k * kWidth + i] = panel[k * stride_k + i];
      }
    } else {
      for (int i = 0; i < width; ++i) {
        for (std::int64_t k = 0; k < depth; ++k) {
          packed[k * kWidth + i] = panel[i * stride_i + k * stride_k];
        }
      }
    }
  }
}

// c[kRows, kColumns] = a b + bias (null: none), or += if `accumulate`. Every loop over the
// accumulators is unrolled, or the compiler keeps them in memory.
template <class T>
static inline void multiply_tile(std::int64_t depth, const T* a, const T* b, const T* bias,
                                 bool accumulate, T* c, std::int64_t ldc) {
  using V = typename VectorOf<T>::Type;
  V sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sum[i][j] = V{};
  }
  for (std::int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns<T>) {
    V right[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      right[j] = *reinterpret_cast<const V*>(b + j * kLanes<T>);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) sum[i][j] += a[i] * right[j];
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      V& out = *reinterpret_cast<V*>(c + i * ldc + j * kLanes<T>);
      V value = sum[i][j];
      if (bias) value += *reinterpret_cast<const V*>(bias + j * kLanes<T>);
      out = accumulate ? out + value : value;
    }
  }
}

// A tile at the edge of c: computed whole, of which rows x columns are kept.
template <class T>
static void multiply_edge(std::int64_t depth, const T* a, const T* b, const T* bias,
                          bool accumulate, T* c, std::int64_t ldc, int rows, int columns) {
  T tile[kRows * kColumns<T>];
  multiply_tile<T>(depth, a, b, nullptr, false, tile, kColumns<T>);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      const T value = tile[i * kColumns<T> + j] + (bias ? bias[j] : T(0));
      T& out = c[i * ldc + j];
      out = accumulate ? out + value : value;
    }
  }
}

// One packed block of a [rows, depth] times one of b [depth, columns] into c.
template <class T>
static void multiply_block(std::int64_t rows, std::int64_t columns, std::int64_t depth, const T* a,
                           const T* b, const T* bias, bool accumulate, T* c, std::int64_t ldc) {
  for (std::int64_t j = 0; j < columns; j += kColumns<T>) {
    const int width = static_cast<int>(smaller(kColumns<T>, columns - j));
    for (std::int64_t i = 0; i < rows; i += kRows) {
      const int height = static_cast<int>(smaller(kRows, rows - i));
      const T* tile_bias = bias ? bias + j : nullptr;
      T* out = c + i * ldc + j;
      if (height == kRows && width == kColumns<T>) {
        multiply_tile<T>(depth, a + i * depth, b + j * depth, tile_bias, accumulate, out, ldc);
      } else {
        multiply_edge<T>(depth, a + i * depth, b + j * depth, tile_bias, accumulate, out, ldc,
                         height, width);
      }
    }
  }
}

template <class T>
static void builtin_matmul(const MatmulShape& s, const T* a, const T* b, const T* bias, T* c) {
  const std::int64_t a_row = s.transpose_a ? 1 : s.lda, a_depth = s.transpose_a ? s.lda : 1;
  const std::int64_t b_column = s.transpose_b ? s.ldb : 1, b_depth = s.transpose_b ? 1 : s.ldb;
  const std::int64_t depth_block = smaller(s.k, kDepthBlock<T>);
  const std::int64_t row_block = round_up(smaller(s.m, kRowBlock), kRows);
  const std::int64_t column_block = round_up(smaller(s.n, kColumnBlock), kColumns<T>);
  T* packed_a =
      static_cast<T*>(thread_scratch(Scratch::packed_a, sizeof(T) * row_block * depth_block));
  T* packed_b =
      static_cast<T*>(thread_scratch(Scratch::packed_b, sizeof(T) * column_block * depth_block));
  for (std::int64_t j = 0; j < s.n; j += column_block) {
    const std::int64_t columns = smaller(column_block, s.n - j);
    for (std::int64_t k = 0; k < s.k; k += depth_block) {
      const std::int64_t depth = smaller(depth_block, s.k - k);
      pack<kColumns<T>>(b + j * b_column + k * b_depth, b_column, b_depth, columns, depth,
                        packed_b);
      const T* block_bias = s.bias && k == 0 ? bias + j : nullptr;
      for (std::int64_t i = 0; i < s.m; i += row_block) {
        const std::int64_t rows = smaller(row_block, s.m - i);
        pack<kRows>(a + i * a_row + k * a_depth, a_row, a_depth, rows, depth, packed_a);
        multiply_block<T>(rows, columns, depth, packed_a, packed_b, block_bias,
                          s.accumulate || k > 0, c + i * s.ldc + j, s.ldc);
      }
    }
  }
}

}  // namespace
}  // namespace mb
