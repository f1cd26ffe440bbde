// Memory of the emulated devices, and pinned host memory. A test double; see emulation.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mb::cuda_emulation {

// `bytes` of NaN between guards, aligned to 256 as cudaMalloc's; nullptr where the device is full.
void* take(int device, std::size_t bytes);
// False for what is not a live allocation's beginning. Freed blocks are kept for a while, as NaN.
bool give(void* data);
std::size_t free_bytes(int device);
// Writes past the ends of allocations and into freed ones, so far.
std::vector<std::string> heap_faults();
void clear_heap();
void set_current_device(int device);

}  // namespace mb::cuda_emulation
