// Collects what the devices of this process did, by CUPTI's activity records, each linked to the
// instruction that launched it. cupti.cc does it, no_cupti.cc is what a build without CUPTI has.
#pragma once

#include <optional>
#include <string>

#include "bench/profile/records.h"

namespace mb {

// Throws Error where start_cupti() could never work: in this build, or with the library that is
// loaded. Attaches nothing to the process.
void check_cupti();

// Starts to collect, and tells CUPTI from then on which instruction a launch is for. Times are of
// now_ns(). Once per process at a time, between steps. Throws Error, with what would help, where
// this build has no CUPTI, there is no GPU, the user may not, or another profiler is attached.
void start_cupti();

// Ends it and returns all records, in no order. To be called when the devices have been
// synchronised: records of what still runs would be incomplete.
ActivityRecords stop_cupti();

}  // namespace mb
