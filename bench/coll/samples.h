// Starts and ends of operations on every member of a group, and what they say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/analysis/stats.h"

namespace mb {

// Times on a common clock, in ns: [member][operation], as many of each.
struct Samples {
  std::vector<std::vector<std::int64_t>> start, end;

  void append(const Samples& more);  // operations of the same members
  int members() const { return static_cast<int>(start.size()); }
  std::int64_t operations() const {
    return start.empty() ? 0 : static_cast<std::int64_t>(start.front().size());
  }
};

// By operation: from the last start to the last end, and from the first start to the last one.
std::vector<double> completions_ns(const Samples& samples);
std::vector<double> arrival_skews_ns(const Samples& samples);

// Of one member, over operations.
struct MemberTimes {
  double wait_ns = 0;      // median: until the last member has started
  double transfer_ns = 0;  // median: from then to its own end
  double late_ns = 0;      // median: its start after the median start of the others
  double late_deviation_ns = 0, transfer_deviation_ns = 0;  // median absolute deviations
  std::int64_t arrived_last = 0;                            // operations
};
std::vector<MemberTimes> member_times(const Samples& samples);

// Each member's own duration of each operation. Their mean is what OSU's benchmarks print.
std::vector<double> durations_ns(const Samples& samples);

// 95 % interval of the median of values that were measured one after the other: the wider of two,
// that of all by themselves, and that of the medians of a dozen parts, where there are enough, as
// times that follow each other are alike. Never beyond the least and the largest value.
std::optional<Range> median_interval_in_order(std::span<const double> values);

struct Distribution {
  std::int64_t n = 0;
  double min = 0, p50 = 0, p95 = 0, p99 = 0, p999 = 0, max = 0;
  double deviation = 0;           // median absolute
  std::optional<Range> interval;  // of the median, as above
  std::int64_t outliers = 0;      // farther than 5 normal standard deviations by `deviation`
};
Distribution distribution(std::span<const double> values);  // in the order of measurement

// Half the width of that interval relative to the median, its longer side.
std::optional<double> relative_half_width(std::span<const double> values);
// Whether the last third differs from the first: by more than a twentieth, with intervals of their
// medians that do not meet.
bool drifts(std::span<const double> values);

}  // namespace mb
