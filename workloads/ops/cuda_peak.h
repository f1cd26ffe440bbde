// What a GPU can do at best, measured on it: products by cuBLASLt, and copies. cuda_peak.cc has
// it; no_cuda_peak.cc is what a build without CUDA has.
#pragma once

#include <cstdint>
#include <string>

#include "workloads/base/dtype.h"

namespace mb {

// How long to measure: warm-up, then `tries` of `try_ms` each (at least one run), whose median
// counts: clocks under load rather than those of a first moment.
struct GpuEffort {
  double warm_up_ms = 200, try_ms = 50;
  int tries = 5;
};

struct GemmShape {
  std::int64_t m = 8192, n = 8192, k = 8192;
};

// FLOP/s of c[m, n] = a[m, k] b[n, k]^T, both of `dtype`, as is c; sums in fp32 (fp64 of fp64).
// Operands are random, since products of zeros draw less power and clock higher. `tf32` may round
// those of fp32. On the current device. Throws Error, OutOfMemory.
double measure_gemm(DType dtype, bool tf32, const GemmShape& shape, const GpuEffort& effort = {});

// Bytes per second of cudaMemcpyAsync of `bytes`. Within the device each byte counts twice, as it
// is read and written; from and to the host, pinned memory, once.
struct GpuCopyRates {
  double within = 0, to_device = 0, to_host = 0;
};
GpuCopyRates measure_copies(std::int64_t bytes, const GpuEffort& effort = {});

// Why times of these GPUs mean nothing, so that reports leave out every speed; null of real ones.
const char* why_no_speed();

// Name of the current device, "NVIDIA H100 80GB HBM3". Throws Error where there is none.
std::string gpu_name();

}  // namespace mb
