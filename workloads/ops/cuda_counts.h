// Counts of rows that only the device knows, read by the host. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/base/cuda_check.h"

namespace mb::cuda {

// Pinned memory that counts come to, one for each stream.
class HostCounts {
 public:
  HostCounts() = default;
  ~HostCounts() { cudaFreeHost(counts_); }
  HostCounts(const HostCounts&) = delete;
  HostCounts& operator=(const HostCounts&) = delete;

  void make_room(std::int64_t n) {
    if (n <= room_) return;
    check(cudaFreeHost(counts_), "cudaFreeHost");
    counts_ = nullptr;
    room_ = 0;
    void* made = nullptr;
    check(cudaHostAlloc(&made, n * sizeof(std::int32_t), cudaHostAllocDefault), "cudaHostAlloc");
    counts_ = static_cast<std::int32_t*>(made);
    room_ = n;
  }
  // Waits for the stream; what it returns is there until the next call. A stream that is being
  // captured cannot be waited for.
  const std::int32_t* read(cudaStream_t stream, const std::int32_t* from, std::int64_t n) {
    check(cudaMemcpyAsync(counts_, from, n * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync of counts");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize for the rows of experts");
    return counts_;
  }

 private:
  std::int32_t* counts_ = nullptr;
  std::int64_t room_ = 0;
};

}  // namespace mb::cuda
