// A graph of cuDNN's operations as plain data, and what it computes. A test double; see
// emulation.h.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace mb::cuda_emulation {

struct CudnnTensor {
  cudnnDataType_t type;
  std::array<std::int64_t, 4> dims, strides;
  bool is_between, is_scalar;
};

struct CudnnOperation {
  enum class Kind { pointwise, reduction, matmul, reshape } kind;
  int mode, axis;  // of pointwise operations and reductions
  std::vector<std::int64_t> in;
  std::int64_t out;
};

// Tensors by their numbers.
struct CudnnProgram {
  std::vector<CudnnOperation> operations;
  std::map<std::int64_t, CudnnTensor> tensors;
};
// Throws Error where shapes do not fit, or where something is read before it is written.
void check(const CudnnProgram& program);

struct CudnnOperands {
  std::map<std::int64_t, void*> memory;
  std::map<std::int64_t, float> scalars;
};
// On memory of a device. Notes a fault for operands that are missing, not aligned to 16 bytes, or
// not the device's.
void run(const CudnnProgram& program, const CudnnOperands& operands, int device);

}  // namespace mb::cuda_emulation
