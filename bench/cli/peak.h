// What MFU and HFU are shares of.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/case.h"

namespace mb {

struct Peak {
  int devices = 1;                    // of the case: GPUs, or the cores that its ranks can use
  std::optional<double> flops_per_s;  // of one device: dense, for what its matmuls compute in
  std::string source;                 // "FMA rate measured on this core", or why there is none
};
// Modes with GPUs: a product by cuBLASLt, measured on the spot (half a second). mode=threads and
// mpi: measured on the spot (50 ms), one device for each rank up to the cores that there are.
// mode=sim: the machine's datasheet.
Peak peak_of(const Case& c);

// Cores that this process may run on.
int usable_cores();

}  // namespace mb
