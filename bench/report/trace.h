// A timeline as a Chrome trace, for ui.perfetto.dev and chrome://tracing (the Trace Event Format).
//
// One process a rank, one thread a stream; a stream whose slices overlap gets further threads,
// since viewers drop what overlaps. Ranks that share a lane are shown once. Arrows lead from sends
// to their receives, and a thread of its own shows the pipeline bubble by phase. A slice is named
// by pass, micro-batch, chunk, layer and site, "W3.1 l5 mlp.up", and coloured by pass.
#pragma once

#include <iosfwd>
#include <string>

#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// Strict JSON. Times count from the step's start in microseconds with three decimals, so that
// nanoseconds survive; "baseTimeNanoseconds" holds the start.
void write_trace(std::ostream& out, const Plan& plan, const Timeline& timeline);

// To a file, renamed into place. Throws Error naming the path if it cannot be written.
void save_trace(const std::string& path, const Plan& plan, const Timeline& timeline);

}  // namespace mb
