// Memory around the tensors: what is reserved, what the system sees, and what is left.
#pragma once

#include <vector>

#include "bench/analysis/metrics.h"
#include "bench/cli/case.h"
#include "bench/cli/measure.h"

namespace mb {

// "reserved_bytes", the largest arena of a rank, holes between tensors included; in mode=threads
// "process_peak_rss_bytes", what the system saw this whole process hold; and "headroom_bytes", how
// much more the run could have taken: of a simulated device, of the fullest GPU, or of this
// machine. It is negative where a simulated device is too small.
std::vector<Metric> outer_memory(const Case& c, const Measured& measured);

}  // namespace mb
