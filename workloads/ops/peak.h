// What one core can do, measured on the calling thread's CPU time, and what memory can do, measured
// by the clock: ceilings for MFU, collectives and reports.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "workloads/base/dtype.h"
#include "workloads/base/pages.h"
#include "workloads/ops/stores.h"

namespace mb {

// Multiply-adds from registers, best of several tries; about 50 ms. Throws Error unless fp32 or
// fp64.
double measure_fma_gflops(DType dtype);

// a = b + s * c over 3 * 32 MiB, counting 12 bytes per element (McCalpin's STREAM).
double measure_triad_gb_per_s();

// What threads at once read and write of three arrays, each thread its own part: memory bandwidth M
// where the arrays are far larger than the caches, theirs where they fit in them. Arrays are in
// huge pages that were touched by the threads that use them.
class Bandwidth {
 public:
  enum class Pattern : std::uint8_t { triad, copy };  // a = b + s * c, a = b

  // Throws Error unless there is a thread or more and each has 64 bytes of each array.
  Bandwidth(int threads, std::int64_t array_bytes);

  // The median of `tries` measurements of 64 MiB or more of each array. Bytes are those read and
  // written (3 or 2 for each byte of an array), as STREAM counts: with streaming stores just what
  // passes between cores and memory; with ordinary ones memory reads a line before it is written,
  // which is not counted.
  double gb_per_s(Pattern pattern, Stores stores = Stores::streaming, int tries = 5) const;

 private:
  std::int64_t part_elements_;               // fp32, of each array for each thread
  std::vector<std::array<Pages, 3>> parts_;  // of each thread
};

// CPU time of the calling thread.
std::int64_t thread_cpu_ns();

}  // namespace mb
