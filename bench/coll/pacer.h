// How many operations to time: until the median is known well enough, or time is up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace mb {

struct PacerOptions {
  double interval = 0.02;  // wanted half width of the median's 95 % interval, relative to it
  double time_cap_s = 0.5;
  double time_least_s = 0.02;  // what is slow for a few milliseconds is not the whole point
  std::int64_t least = 10, most = 20'000;
  std::int64_t batch = 4096;  // at most so many at once
};

// The next number of operations, 0 to stop. Batches double, so that the interval is looked at few
// times and keeps its coverage. `half_width` is that of the least certain group, `n` operations
// took `elapsed_s` in all. Fewer than `least` are taken only where they would take four times the
// cap, and for less than `time_least_s` only where there are `most`.
std::int64_t next_batch(const PacerOptions& options, std::int64_t n,
                        std::optional<double> half_width, double elapsed_s);

// Whether warm-up may end: the last of these medians of batches is not below the one before by more
// than a twentieth.
bool is_warm(std::span<const double> medians);

}  // namespace mb
