// Times of `meshbench coll` as a fit takes them, without a file between.
#pragma once

#include <vector>

#include "bench/coll/text.h"
#include "bench/fit/rows.h"

namespace mb {

// Of algorithm=own and native, with nothing beside them.
std::vector<CollectiveTime> collective_times(const CollConfig& config,
                                             const std::vector<MeasuredPoint>& all);

}  // namespace mb
