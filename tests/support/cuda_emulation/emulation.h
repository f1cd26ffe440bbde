// A TEST DOUBLE of the CUDA runtime, cuBLASLt, cuDNN and NCCL, on the host: what tests control
// about it.
//
// mb_cuda_emulation defines the functions of these libraries that Meshbench calls, and is linked
// into test programs instead of them. Devices are imaginary, each stream is a thread that runs its
// work in order, device memory is host memory that starts as NaN and is guarded. Nothing here says
// anything about speed; no time taken from it is ever reported.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mb::cuda_emulation {

struct Settings {
  int devices = 8;
  std::size_t memory_bytes = std::size_t{1} << 30;  // of each device
  // Before each piece of work a stream sleeps for up to so long, by a function of the seed and the
  // number of the piece: missing waits show.
  int most_delay_us = 0;
  std::uint64_t seed = 1;
  int driver_version = 13000;  // 0: there is no driver
  int nccl_version = 0;        // of the library; 0: that of the header
  int cudnn_version = 0;       // of the library; 0: that of the header, -1: there is none
  // Of communicators that do not block: how often one has to ask whether a call is through, which
  // launches nothing before.
  int nccl_polls = 0;
};

// As after the start of a process, with these settings. No stream may be in use; what earlier tests
// did not free is forgotten.
void reset(const Settings& settings = {});

// The `call`-th call of `function` from now on, counted from 1, returns `error`, a cudaError_t,
// cublasStatus_t or cudnnStatus_t as the function does; `sticky`: so does every later call of the
// device.
void fail(const std::string& function, int call, int error, bool sticky = false);
// The communicators that `device` has report `error`, an ncclResult_t, from now on, as after a link
// is lost; what waits in their kernels waits on.
void fail_communicators(int device, int error);
// How often a function has been called since the reset.
std::int64_t calls(const std::string& function);

// What a device would not have survived, or would have computed wrong numbers from, one line each:
// memory used after it was freed or out of its bounds, host pointers taken for device pointers,
// what was written past the end of an allocation, communication that does not fit or would wait for
// ever. Looks through all guards and freed blocks.
std::vector<std::string> faults();

struct Memory {
  std::size_t live_bytes = 0;    // of device memory
  std::size_t peak_bytes = 0;    // the most that was live at once
  std::size_t pinned_bytes = 0;  // of host memory, live
  int allocations = 0;           // calls that took device memory since the reset
};
Memory memory(int device);

}  // namespace mb::cuda_emulation
