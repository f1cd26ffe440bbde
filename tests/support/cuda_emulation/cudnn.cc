// cuDNN's graph interface on the host: any graph of the operations that Meshbench builds, computed
// operation after operation with every tensor in full. A test double; see emulation.h.
//
// Stricter than the library: a plan runs with all of its tensors, aligned, and with workspace.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/cudnn_program.h"
#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"
#include "workloads/ops/cudnn_api.h"

namespace mb::cuda_emulation {
namespace {

constexpr std::int64_t kWorkspaceBytes = 512;

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> attributes;
  bool final = false;
  std::shared_ptr<const CudnnProgram> program;  // of graphs, and what is made of them

  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    const auto found = attributes.find(name);
    if (found != attributes.end() && found->second.size() >= sizeof(T))
      std::memcpy(&otherwise, found->second.data(), sizeof(T));
    return otherwise;
  }
  const Descriptor* other(cudnnBackendAttributeName_t name) const {
    return static_cast<const Descriptor*>(one<void*>(name));
  }
};

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:  // enumerations
      return 4;
  }
}

CudnnTensor tensor_of(const Descriptor& d) {
  CudnnTensor tensor{d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), {}, {}, false, false};
  const auto dims = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  require(dims.size() == 4 && strides.size() == 4, "a tensor of the emulation has 4 dimensions");
  std::copy(dims.begin(), dims.end(), tensor.dims.begin());
  std::copy(strides.begin(), strides.end(), tensor.strides.begin());
  tensor.is_between = d.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  tensor.is_scalar = d.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  return tensor;
}

// Where an operation's inputs and output stand.
struct Ports {
  CudnnOperation::Kind kind;
  std::vector<cudnnBackendAttributeName_t> in;
  cudnnBackendAttributeName_t out, how;
};
const Ports* ports_of(cudnnBackendDescriptorType_t type) {
  using Kind = CudnnOperation::Kind;
  static const std::map<cudnnBackendDescriptorType_t, Ports> all = {
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {Kind::pointwise,
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
        CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {Kind::reduction,
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
        CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
        CUDNN_ATTR_OPERATION_REDUCTION_DESC}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {Kind::matmul,
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
        CUDNN_ATTR_OPERATION_MATMUL_CDESC,
        CUDNN_ATTR_OPERATION_MATMUL_DESC}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {Kind::reshape,
        {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
        CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
        CUDNN_ATTR_OPERATION_MATMUL_DESC}}};  // there is none
  const auto found = all.find(type);
  return found == all.end() ? nullptr : &found->second;
}

CudnnOperation operation_of(const Descriptor& d, CudnnProgram& program) {
  const Ports* const ports = ports_of(d.type);
  require(ports, "the emulation has no such operation of cuDNN");
  const auto number = [&](cudnnBackendAttributeName_t port) {
    const Descriptor* const tensor = d.other(port);
    require(tensor && tensor->final, "an operation lacks a tensor");
    const auto id = tensor->one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    program.tensors.emplace(id, tensor_of(*tensor));
    return id;
  };
  CudnnOperation operation{ports->kind, 0, 0, {}, number(ports->out)};
  for (const auto port : ports->in) {
    if (d.attributes.contains(port)) operation.in.push_back(number(port));
  }
  if (const Descriptor* const how = d.other(ports->how)) {
    operation.mode = ports->kind == CudnnOperation::Kind::reduction
                         ? how->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR)
                         : how->one<int>(CUDNN_ATTR_POINTWISE_MODE);
    operation.axis = static_cast<int>(how->one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
  }
  return operation;
}

Descriptor& at(cudnnBackendDescriptor_t handle) { return *static_cast<Descriptor*>(handle); }
cudnnStatus_t enter_dnn(const char* name) {
  return static_cast<cudnnStatus_t>(enter(name, CUDNN_STATUS_EXECUTION_FAILED));
}

struct Handle {
  cudaStream_t stream = nullptr;
};

// --- the functions ---

std::size_t version() {
  return settings().cudnn_version ? static_cast<std::size_t>(settings().cudnn_version)
                                  : CUDNN_VERSION;
}
const char* error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                              : "a status that the emulation has no words for";
}
cudnnStatus_t create(cudnnHandle_t* handle) {
  if (const cudnnStatus_t error = enter_dnn("cudnnCreate")) return error;
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t handle) {
  delete reinterpret_cast<Handle*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type, {}, false, nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  delete &at(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  if (at(descriptor).final) return CUDNN_STATUS_BAD_PARAM;
  const auto* const from = static_cast<const std::byte*>(values);
  at(descriptor).attributes[name].assign(from, from + count * bytes_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_checked(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      tensor_of(d);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      auto program = std::make_shared<CudnnProgram>();
      for (void* operation : d.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS))
        program->operations.push_back(operation_of(at(operation), *program));
      check(*program);
      d.program = std::move(program);
      break;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      d.program = d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->program;
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      if (const cudnnStatus_t error = enter_dnn("cudnnBackendFinalize")) return error;
      d.program = d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->program;
      break;
    default:
      break;
  }
  d.final = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  try {
    return finalize_checked(at(descriptor));
  } catch (const Error& error) {
    fault(current_device(), cudaErrorInvalidValue, error.what());
    return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count,
                            void* values) {
  *count = 1;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *static_cast<std::int64_t*>(values) = kWorkspaceBytes;
  } else if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    Descriptor& config = at(*static_cast<void**>(values));
    config.program = at(descriptor).program;
    config.final = true;
  } else {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  if (const cudnnStatus_t error = enter_dnn("cudnnBackendExecute")) return error;
  const std::shared_ptr<const CudnnProgram> program = at(plan).program;
  const auto numbers = at(pack).all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = at(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (!at(plan).final || !at(pack).final || !program || numbers.size() != pointers.size())
    return CUDNN_STATUS_BAD_PARAM;
  CudnnOperands operands;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto tensor = program->tensors.find(numbers[i]);
    if (tensor == program->tensors.end()) return CUDNN_STATUS_BAD_PARAM;
    if (tensor->second.is_scalar) {
      operands.scalars[numbers[i]] = *static_cast<const float*>(pointers[i]);
    } else {
      operands.memory[numbers[i]] = pointers[i];
    }
  }
  const cudaStream_t stream = reinterpret_cast<Handle*>(handle)->stream;
  void* const workspace = at(pack).one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const int device = device_of(stream);
  const cudaError_t error =
      submit(stream, {.call = "cudnnBackendExecute"}, [program, operands, workspace, device] {
        if (check_access(device, workspace, kWorkspaceBytes, "workspace of cuDNN"))
          run(*program, operands, device);
      });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace mb::cuda_emulation

const mb::cuda::Cudnn& mb::cuda::cudnn() {
  using namespace mb::cuda_emulation;
  static const CudnnApi api{version,
                            error_string,
                            create,
                            destroy,
                            set_stream,
                            create_descriptor,
                            destroy_descriptor,
                            set_attribute,
                            get_attribute,
                            finalize,
                            execute};
  static const Cudnn there{&api, ""}, missing{nullptr, "cuDNN is not there: of the emulation"};
  return settings().cudnn_version < 0 ? missing : there;
}
