// Faults that other systems had, each at the place where it would stand here. A build with
// MB_MUTATIONS can switch on one at a time, to prove that a test notices it; any other has none.
#pragma once

#include "workloads/base/host_device.h"

namespace mb {

#ifdef MB_MUTATIONS
// Whether the environment variable MB_MUTATION is `fault`.
bool mutated(const char* fault);
#else
MB_HD constexpr bool mutated(const char* /*fault*/) { return false; }
#endif

}  // namespace mb
