// Memory of the host that CUDA devices copy to and from.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "workloads/base/cuda_check.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {

class PinnedMemory {
 public:
  // Throws OutOfMemory.
  explicit PinnedMemory(std::size_t bytes) {
    const cudaError_t error = cudaHostAlloc(&at_, bytes, cudaHostAllocDefault);
    if (error == cudaErrorMemoryAllocation)
      throw OutOfMemory(cat("this host has no ", format_bytes(static_cast<double>(bytes)),
                            " left that it can pin; give offload=none or a smaller model"),
                        static_cast<std::int64_t>(bytes), 0);
    check(error, "cudaHostAlloc");
    bytes_ = bytes;
  }
  ~PinnedMemory() { cudaFreeHost(at_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* at() const { return at_; }
  bool holds(const void* data) const {
    return data >= at_ && data < static_cast<const std::byte*>(at_) + bytes_;
  }

 private:
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace mb
