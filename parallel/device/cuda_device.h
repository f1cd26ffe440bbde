// CUDA devices as Devices. cuda_device.cc has them, no_cuda.cc is what a build without CUDA has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/device/device.h"

namespace mb {

// How many devices the driver shows. Throws Error, with what would help, where this build has no
// CUDA, or there is no driver or no device.
int cuda_devices();

// A device's memory at this time. What is used and not allocated here is the driver's context,
// libraries' code and other processes'.
struct CudaFacts {
  int device = 0;
  std::string name;
  std::int64_t total_bytes = 0, used_bytes = 0;  // by the driver
  std::int64_t allocated_bytes = 0;              // by ranks of this process
};
// Of each device of cuda_devices() that has ranks of this process. Throws Error as that does.
std::vector<CudaFacts> cuda_facts();

// What attention of this process's ranks has run on, or been prepared for: "cuDNN 9.19.0", "tiles
// of products: ..." with the reason.
std::vector<std::string> cuda_attention();

struct CudaOptions {
  int device = 0;
  bool tf32 = false;            // products of fp32 may round operands to ten bits of mantissa
  bool fused_attention = true;  // by cuDNN where it has kernels, else as tiles of products
  // Steps but the first run as one CUDA graph each: nothing in them may call Device::finish(), and
  // passed() tells of them once they are done.
  bool graph = false;
};
// Streams as in make_cpu_device(): each is a worker thread that enqueues on a CUDA stream.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options, int streams,
                                         const std::string& name);

}  // namespace mb
