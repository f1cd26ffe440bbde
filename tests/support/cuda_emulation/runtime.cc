// The CUDA runtime's functions on the host. A test double; see emulation.h.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "parallel/device/device.h"
#include "tests/support/cuda_emulation/graph.h"
#include "tests/support/cuda_emulation/heap.h"
#include "tests/support/cuda_emulation/state.h"

using namespace mb::cuda_emulation;

namespace {

int visible_devices() { return settings().devices; }

cudaError_t allocate(int device, void** data, std::size_t bytes) {
  if (!data) return cudaErrorInvalidValue;
  *data = bytes == 0 ? nullptr : take(device, bytes);
  return bytes > 0 && !*data ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Whether both ends suit `kind`, as far as they can be told from other memory. Device memory has to
// be in bounds.
bool check_copy(int device, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Range range;
  const bool to_device = find_range(to, range) && range.device != kPinned;
  const bool from_device = find_range(from, range) && range.device != kPinned;
  const auto wants = [kind](cudaMemcpyKind a, cudaMemcpyKind b) { return kind == a || kind == b; };
  const bool checks_to = to_device || wants(cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice);
  const bool checks_from = from_device || wants(cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice);
  // A copy between devices is one of either.
  const auto owner = [&](const void* data) {
    return find_range(data, range) && range.device != kPinned ? range.device : device;
  };
  return (!checks_to || check_access(owner(to), to, bytes, "a copy to")) &&
         (!checks_from || check_access(owner(from), from, bytes, "a copy from"));
}

cudaError_t copy_now(int device, void* to, const void* from, std::size_t bytes,
                     cudaMemcpyKind kind) {
  if (!check_copy(device, to, from, bytes, kind)) return cudaErrorInvalidValue;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

bool is_pageable(const void* data) {
  Range range;
  return !find_range(data, range);
}

// As the driver does, a copy of pageable memory has taken place when the call returns: no graph has
// one.
cudaError_t copy_async(const char* name, void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind, cudaStream_t stream) {
  const bool pageable = is_pageable(to) || is_pageable(from);
  if (pageable) {
    if (const cudaError_t error = refuse_captured(stream, cudaErrorStreamCaptureUnsupported))
      return error;
  }
  const int device = device_of(stream);
  const auto work = [=] { copy_now(device, to, from, bytes, kind); };
  submit(stream, {.call = name, .bytes = bytes, .kind = kind}, work);
  if (pageable) drain(stream);
  return cudaSuccess;
}

std::atomic<std::uint32_t> streams_made{0};

}  // namespace

// --- devices
// --------------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [&] {
    *version = settings().driver_version;
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&] {
    *count = 0;
    if (settings().driver_version == 0) return cudaErrorInsufficientDriver;
    *count = visible_devices();
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] {
    *device = current_device();
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    if (device < 0 || device >= visible_devices()) return cudaErrorInvalidDevice;
    set_current_device(device);
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] {
    if (device < 0 || device >= visible_devices()) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated device (test double)");
    properties->totalGlobalMem = settings().memory_bytes;
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->unifiedAddressing = 1;
    properties->pciBusID = device + 1;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [&] {
    if (device < 0 || device >= visible_devices()) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&] {
    if (device < 0 || device >= visible_devices()) return cudaErrorInvalidDevice;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
             : attribute == cudaDevAttrMultiProcessorCount  ? 4
                                                            : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&] {
    if (std::max(device, peer) >= visible_devices()) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = enter_runtime("cudaDeviceSynchronize")) return error;
  drain_device(current_device());
  return enter_runtime("cudaDeviceSynchronize.done");
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", [&] {
    *free = free_bytes(current_device());
    *total = settings().memory_bytes;
    return cudaSuccess;
  });
}

// --- errors
// ---------------------------------------------------------------------------------------

namespace {
struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints"},
};
}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& known : kErrors)
    if (known.error == error) return known.name;
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& known : kErrors)
    if (known.error == error) return known.text;
  return "an error that the emulation has no words for";
}

// --- memory
// ---------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const std::int64_t start = mb::now_ns();
  const cudaError_t error =
      call("cudaMalloc", [&] { return allocate(current_device(), data, bytes); });
  if (!error) tell_host("cudaMalloc", start, bytes);
  return error;
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", [&] { return allocate(device_of(stream), data, bytes); });
}
cudaError_t cudaFree(void* data) {
  return call("cudaFree", [&] {
    if (!data) return cudaSuccess;
    drain_device(current_device());
    return give(data) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return call("cudaFreeAsync", [&] {
    submit_always(stream, [data] { give(data); });
    return cudaSuccess;
  });
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return call("cudaHostAlloc", [&] { return allocate(kPinned, data, bytes); });
}
cudaError_t cudaFreeHost(void* data) {
  return call("cudaFreeHost",
              [&] { return !data || give(data) ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return call("cudaPointerGetAttributes", [&] {
    Range range;
    const bool known = find_range(data, range);
    *attributes = {};
    attributes->type = !known                    ? cudaMemoryTypeUnregistered
                       : range.device == kPinned ? cudaMemoryTypeHost
                                                 : cudaMemoryTypeDevice;
    attributes->device = known && range.device != kPinned ? range.device : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error =
      call("cudaMemcpy", [&] { return copy_async("cudaMemcpy", to, from, bytes, kind, nullptr); });
  return error ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync",
              [&] { return copy_async("cudaMemcpyAsync", to, from, bytes, kind, stream); });
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] {
    const int device = device_of(stream);
    return submit(stream, {.call = "cudaMemsetAsync", .bytes = bytes}, [=] {
      if (check_access(device, data, bytes, "a memset")) std::memset(data, value, bytes);
    });
  });
}

// --- streams
// --------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return call("cudaStreamCreateWithPriority", [&] {
    *stream = new CUstream_st(current_device(), 8 + ++streams_made);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  forget_captured(stream);
  delete stream;
  return call("cudaStreamDestroy", [] { return cudaSuccess; });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = enter_runtime("cudaStreamSynchronize")) return error;
  if (const cudaError_t error = refuse_captured(stream, cudaErrorStreamCaptureUnsupported))
    return remember(error);
  const std::int64_t start = mb::now_ns();
  drain(stream);
  tell_host("cudaStreamSynchronize", start);
  return enter_runtime("cudaStreamSynchronize.done");
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&] { return stream->idle() ? cudaSuccess : cudaErrorNotReady; });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&] {
    return submit(stream, {.call = "cudaLaunchHostFunc"}, [=] { function(data); });
  });
}
