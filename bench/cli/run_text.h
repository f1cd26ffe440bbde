// What `meshbench run` prints.
#pragma once

#include <string>

#include "bench/analysis/run_report.h"
#include "bench/cli/case.h"
#include "bench/cli/measure.h"
#include "bench/cli/peak.h"

namespace mb {

// The bubble share of the steps replayed with a core for every rank, as a metric; absent in virtual
// time.
Metric own_cores_bubble(const Measured& measured);

// Summary, and unless `brief` the tables: where the step went, pipeline, communication, memory,
// traffic.
std::string run_text(const Case& c, const Measured& measured, const RunReport& report,
                     const Peak& peak, bool brief);

}  // namespace mb
