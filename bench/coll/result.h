// What a point has shown, group by group.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/check.h"
#include "bench/coll/config.h"
#include "bench/coll/samples.h"
#include "workloads/base/pages.h"

namespace mb {

// What was timed. `operation` is what the point is about: with `beside` the other collective ran
// meanwhile, and `alone` is without it. Three are of computation and operation at once. `submit` is
// the part of `operation` until the call's submission to a stream has returned.
enum class Series : std::uint8_t {
  operation,
  alone,
  compute,
  both,
  operation_in_both,
  compute_in_both,
  submit
};
inline constexpr int kSeries = 7;

struct GroupResult {
  int index = 0;                   // among the groups of the axis
  std::vector<int> ranks;          // that take part, in the order of the group
  std::vector<std::string> hosts;  // of these ranks; none in virtual time
  CollCall call;
  std::array<Samples, kSeries> series;
  Findings findings;     // of the member that found something wrong first, counts of all
  int wrong_rank = -1;   // that member
  ThreadUsage usage;     // of all members, in all timed batches
  bool crowded = false;  // some members have no core of their own

  const Samples& of(Series s) const { return series[static_cast<int>(s)]; }
  Samples& of(Series s) { return series[static_cast<int>(s)]; }
};

struct PointResult {
  Point point;
  std::vector<GroupResult> groups;
  std::int64_t warm_up = 0;  // operations
  bool warm = true;          // got stable in time
  bool certain = true;       // the median's interval got as narrow as wanted
  bool interrupted = false;
  std::int64_t compute_units = 0;  // of overlap: kernels to an operation
  double clock_uncertainty_ns = 0;
  bool pinned = false;    // each rank to a core of its own
  double huge_share = 0;  // of rank 0's buffers in huge pages
};

}  // namespace mb
