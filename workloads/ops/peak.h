// What one core can do, measured on the calling thread's CPU time: ceilings for MFU and reports.
#pragma once

#include <cstdint>

#include "workloads/base/dtype.h"

namespace mb {

// Multiply-adds from registers, best of several tries; about 50 ms. Throws Error unless fp32 or
// fp64.
double measure_fma_gflops(DType dtype);

// a = b + s * c over 3 * 32 MiB, counting 12 bytes per element (McCalpin's STREAM).
double measure_triad_gb_per_s();

// CPU time of the calling thread.
std::int64_t thread_cpu_ns();

}  // namespace mb
