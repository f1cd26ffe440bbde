// Memory of CUDA devices, counted, and what is said where there is not enough.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "workloads/base/cuda_check.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb::cuda {

// Device memory of this process that Memory holds, by device.
inline std::atomic<std::int64_t>& allocated_bytes(int device) {
  static std::array<std::atomic<std::int64_t>, 64> bytes{};
  return bytes.at(static_cast<std::size_t>(device));
}

// An allocation on the device that is current when it is made.
class Memory {
 public:
  Memory() = default;
  // `what` it is for. Throws OutOfMemory.
  Memory(std::size_t bytes, const char* what) : bytes_(static_cast<std::int64_t>(bytes)) {
    check(cudaGetDevice(&device_), "cudaGetDevice");
    const cudaError_t error = cudaMalloc(&at_, bytes);
    if (error == cudaErrorMemoryAllocation) throw_out_of_memory(what);
    check(error, "cudaMalloc");
    allocated_bytes(device_) += bytes_;
  }
  ~Memory() {
    if (!at_) return;
    cudaFree(at_);
    allocated_bytes(device_) -= bytes_;
  }
  Memory(Memory&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_), device_(other.device_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    return *this;
  }

  void* at() const { return at_; }

 private:
  [[noreturn]] void throw_out_of_memory(const char* what) const {
    cudaGetLastError();  // so that nobody takes it for an error of his own
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw OutOfMemory(
        cat("cuda device ", device_, " is out of memory: ", what, " takes ", format_bytes(bytes_),
            ", and of ", format_bytes(static_cast<double>(total)), " there are ",
            format_bytes(static_cast<double>(free)), " left"),
        bytes_, static_cast<std::int64_t>(free));
  }

  void* at_ = nullptr;
  std::int64_t bytes_ = 0;
  int device_ = 0;
};

}  // namespace mb::cuda
