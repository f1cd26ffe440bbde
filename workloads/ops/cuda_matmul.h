// Matrix products by cuBLASLt, whose matrices are column-major, on operands that are row-major as
// everywhere here.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "workloads/base/cuda_memory.h"
#include "workloads/base/dtype.h"
#include "workloads/ops/matmul.h"

namespace mb::cuda {

// A matrix product, `batch` times; strides from one to the next are in elements, of the matrix as
// stored.
struct Product : MatmulShape {
  DType in = DType::fp32, out = DType::fp32;  // of a, b and bias; of c
  int batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  auto operator<=>(const Product&) const = default;
};

// One for each stream: products of a stream share its workspace. Sums are in fp32, or fp64 of fp64.
class MatmulLibrary {
 public:
  // `tf32`: products of fp32 may round operands to ten bits of mantissa.
  explicit MatmulLibrary(bool tf32);
  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  // The algorithm is chosen when a product with operands so aligned is first seen. Throws Error for
  // a bias in fp64, or where c is of another type than a and b.
  void run(cudaStream_t stream, const Product& product, const void* a, const void* b,
           const void* bias, void* c);

 private:
  struct Ready;
  // Bytes that the addresses of a, b and c are multiples of.
  using Alignment = std::array<std::uint32_t, 3>;
  Ready& find(const Product& product, const Alignment& alignment);

  const bool tf32_;
  cublasLtHandle_t handle_ = nullptr;
  Memory workspace_;
  std::map<std::pair<Product, Alignment>, Ready> ready_;
};

}  // namespace mb::cuda
