#include "workloads/ops/cudnn_graph.h"

#include <utility>

#include "workloads/base/error.h"

namespace mb::cuda {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes

}  // namespace

void check(const CudnnApi& api, cudnnStatus_t status, const char* what) {
  require(status == CUDNN_STATUS_SUCCESS, what, ": ", api.error_string(status));
}

CudnnDescriptor::CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type)
    : api_(api) {
  check(api, api.create_descriptor(type, &at_), "cudnnBackendCreateDescriptor");
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : api_(other.api_), at_(std::exchange(other.at_, nullptr)) {}
CudnnDescriptor::~CudnnDescriptor() {
  if (at_) api_.destroy_descriptor(at_);
}
void CudnnDescriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              std::int64_t count, const void* values) {
  check(api_, api_.set_attribute(at_, name, type, count, values), "cudnnBackendSetAttribute");
}
void CudnnDescriptor::finalize(const char* what) {
  check(api_, api_.finalize(at_), cat("cudnnBackendFinalize of ", what).c_str());
}

CudnnShape packed(std::array<std::int64_t, 4> dims) {
  return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
}
CudnnShape transposed(const CudnnShape& shape) {
  CudnnShape result = shape;
  std::swap(result.dims[2], result.dims[3]);
  std::swap(result.strides[2], result.strides[3]);
  return result;
}

// --- tensors and operations ---

CudnnGraph::Tensor CudnnGraph::add(const CudnnShape& shape, cudnnDataType_t type, bool is_between,
                                   bool is_scalar) {
  const auto id = static_cast<Tensor>(tensors_.size()) + 1;
  CudnnDescriptor tensor(api_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  tensor.set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.dims.data());
  tensor.set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape.strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_between);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_scalar);
  tensor.finalize("a tensor");
  tensors_.push_back(std::move(tensor));
  types_.push_back(type);
  return id;
}
CudnnGraph::Tensor CudnnGraph::memory(const CudnnShape& shape, cudnnDataType_t type) {
  return add(shape, type, false, false);
}
CudnnGraph::Tensor CudnnGraph::scalar(cudnnDataType_t type) {
  return add(packed({1, 1, 1, 1}), type, false, true);
}
CudnnGraph::Tensor CudnnGraph::between(const CudnnShape& shape, cudnnDataType_t type) {
  return add(shape, type, true, false);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
  pointwise(mode, std::array{x, b}, y);
}
void CudnnGraph::select(Tensor x, Tensor b, Tensor condition, Tensor y) {
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, std::array{x, b, condition}, y);
}
void CudnnGraph::index(int axis, Tensor x, Tensor y) {
  pointwise(CUDNN_POINTWISE_GEN_INDEX, {&x, 1}, y, axis);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::span<const Tensor> operands, Tensor y,
                           int axis) {
  // Numbers and truths are computed as such.
  const cudnnDataType_t type = types_[y - 1];
  const cudnnDataType_t computes =
      type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN ? type : CUDNN_DATA_FLOAT;
  CudnnDescriptor how(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computes);
  if (axis >= 0)
    how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(axis));
  how.finalize("a pointwise operation");
  constexpr cudnnBackendAttributeName_t kOperands[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  CudnnDescriptor operation(api_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  for (std::size_t i = 0; i < operands.size(); ++i) operation.set(kOperands[i], of(operands[i]));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of(y));
  operation.finalize("a pointwise operation's tensors");
  settings_.push_back(std::move(how));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize("a reduction");
  CudnnDescriptor operation(api_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of(x));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, of(y));
  operation.finalize("a reduction's tensors");
  settings_.push_back(std::move(how));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalize("a product");
  CudnnDescriptor operation(api_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, of(a));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, of(b));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, of(c));
  operation.finalize("a product's tensors");
  settings_.push_back(std::move(how));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  CudnnDescriptor operation(api_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, of(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, of(y));
  operation.finalize("a change of shape");
  operations_.push_back(std::move(operation));
}

// --- plans ---

CudnnPlan::CudnnPlan(const CudnnApi& api, cudnnHandle_t handle, CudnnGraph graph)
    : api_(api),
      graph_(std::move(graph)),
      operations_(api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  choose(handle, nullptr);
}
CudnnPlan::CudnnPlan(const CudnnApi& api, const CudnnDescriptor& device, CudnnGraph graph)
    : api_(api),
      graph_(std::move(graph)),
      operations_(api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  choose(nullptr, &device);
}

void CudnnPlan::choose(cudnnHandle_t handle, const CudnnDescriptor* device) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : graph_.operations_) operations.push_back(operation.at());
  if (handle) operations_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  operations_.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      static_cast<std::int64_t>(operations.size()), operations.data());
  operations_.finalize("a graph");

  CudnnDescriptor heuristics(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations_);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
  heuristics.finalize("its heuristics");
  constexpr std::int64_t kMost = 8;
  std::vector<cudnnBackendDescriptor_t> found;
  for (std::int64_t i = 0; i < kMost; ++i)
    found.push_back(configs_.emplace_back(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).at());
  std::int64_t count = 0;
  check(api_,
        api_.get_attribute(heuristics.at(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, found.data()),
        "cudnnBackendGetAttribute");
  cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
  for (std::int64_t i = 0; i < count && plans_.empty(); ++i) {
    CudnnDescriptor plan(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    if (device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs_[i]);
    last = plan.try_finalize();
    if (last == CUDNN_STATUS_SUCCESS) plans_.push_back(std::move(plan));
  }
  require(!plans_.empty(), "cuDNN has no kernel for it: ", api_.error_string(last));
  std::int64_t one = 0;
  check(api_,
        api_.get_attribute(plans_[0].at(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                           CUDNN_TYPE_INT64, 1, &one, &workspace_bytes_),
        "cudnnBackendGetAttribute");
}

void CudnnPlan::run(cudnnHandle_t handle, std::span<const CudnnGraph::Tensor> tensors,
                    std::span<void* const> pointers, void* workspace) const {
  CudnnDescriptor operands(api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(tensors.size());
  operands.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, tensors.data());
  operands.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                   pointers.data());
  operands.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  operands.finalize("operands");
  check(api_, api_.execute(handle, plans_[0].at(), operands.at()), "cudnnBackendExecute");
}

}  // namespace mb::cuda
