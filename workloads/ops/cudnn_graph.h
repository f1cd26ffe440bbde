// Builds a graph of cuDNN's operations: tensors and what leads from one to the next, then a plan of
// kernels for it. Every tensor has four dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "workloads/ops/cudnn_api.h"

namespace mb::cuda {

// Owns a descriptor of the library.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_all(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.at_);
  }
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::int64_t count, const void* values);
  cudnnStatus_t try_finalize() { return api_.finalize(at_); }
  void finalize(const char* what);
  cudnnBackendDescriptor_t at() const { return at_; }

 private:
  const CudnnApi& api_;
  cudnnBackendDescriptor_t at_ = nullptr;
};

// Throws Error, with the function's name, unless it went well.
void check(const CudnnApi& api, cudnnStatus_t status, const char* what);

// Elements from one to the next along each dimension.
struct CudnnShape {
  std::array<std::int64_t, 4> dims, strides;
};
// A packed tensor.
CudnnShape packed(std::array<std::int64_t, 4> dims);
// The same memory with the last two dimensions exchanged.
CudnnShape transposed(const CudnnShape& shape);

class CudnnGraph {
 public:
  // Numbers a tensor; pointers are given by it.
  using Tensor = std::int64_t;

  explicit CudnnGraph(const CudnnApi& api) : api_(api) {}

  // In memory of the device, aligned to 16 bytes; in memory of the host, read at every run; or
  // between two operations, where it needs none.
  Tensor memory(const CudnnShape& shape, cudnnDataType_t type);
  Tensor scalar(cudnnDataType_t type);
  Tensor between(const CudnnShape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  // Each writes `y`. A scalar or a row's number as `b` is one for all that it stands for.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y) { pointwise(mode, {&x, 1}, y); }
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
  // y = condition ? x : b.
  void select(Tensor x, Tensor b, Tensor condition, Tensor y);
  // y = the place along `axis`.
  void index(int axis, Tensor x, Tensor y);
  // Over the dimensions in which y is 1 and x is not, or those that y has fewer of.
  void reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y);
  // c = a b over the last two dimensions.
  void matmul(Tensor a, Tensor b, Tensor c);
  // y is x by other dimensions, strides or type.
  void reshape(Tensor x, Tensor y);

 private:
  friend class CudnnPlan;

  Tensor add(const CudnnShape& shape, cudnnDataType_t type, bool is_between, bool is_scalar);
  void pointwise(cudnnPointwiseMode_t mode, std::span<const Tensor> operands, Tensor y,
                 int axis = -1);
  const CudnnDescriptor& of(Tensor tensor) const { return tensors_[tensor - 1]; }

  const CudnnApi& api_;
  std::vector<CudnnDescriptor> tensors_;  // of Tensor - 1
  std::vector<cudnnDataType_t> types_;
  std::vector<CudnnDescriptor> settings_;    // of pointwise operations, products and sums
  std::vector<CudnnDescriptor> operations_;  // in order
};

// Kernels for a graph on a device: those that the library's heuristics name first.
class CudnnPlan {
 public:
  // Throws Error where the library has none.
  CudnnPlan(const CudnnApi& api, cudnnHandle_t handle, CudnnGraph graph);
  // The same for a device that is described and not there; it cannot run.
  CudnnPlan(const CudnnApi& api, const CudnnDescriptor& device, CudnnGraph graph);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  // On the handle's stream. Pointers of all tensors that are in memory.
  void run(cudnnHandle_t handle, std::span<const CudnnGraph::Tensor> tensors,
           std::span<void* const> pointers, void* workspace) const;

 private:
  void choose(cudnnHandle_t handle, const CudnnDescriptor* device);

  const CudnnApi& api_;
  CudnnGraph graph_;
  CudnnDescriptor operations_;
  std::vector<CudnnDescriptor> configs_;
  std::vector<CudnnDescriptor> plans_;  // one
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace mb::cuda
