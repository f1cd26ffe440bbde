// One point of a collective, measured by ranks that are made for it alone.
#pragma once

#include <optional>

#include "bench/cli/coll_case.h"
#include "bench/coll/summary.h"

namespace mb {

// None on a process that does not have rank 0. Throws Error where an element came out wrong.
std::optional<PointSummary> measured_point(const CollCase& c, const Point& point,
                                           const Surroundings& around);
}  // namespace mb
