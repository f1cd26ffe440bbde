// Two clocks that drift apart, brought together by messages there and back.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

namespace mb {

// One message there and back: when it left and came back by the clock here, and the other clock in
// between.
struct RoundTrip {
  std::int64_t sent_ns = 0, there_ns = 0, back_ns = 0;
};

// The other clock is ahead of this one by `offset_ns` at `here_ns`, give or take `uncertainty_ns`.
struct ClockSample {
  std::int64_t here_ns = 0;
  double offset_ns = 0, uncertainty_ns = 0;
};
// From the shortest of at least one round trip: the other clock was read at its middle, give or
// take half of it (Cristian, 1989).
ClockSample best_of(std::span<const RoundTrip> trips);

// The offset as a line through samples; 0 before there is any.
class ClockLine {
 public:
  // Samples come in order of time; those of long ago are dropped.
  void add(const ClockSample& sample);
  std::int64_t there_ns(std::int64_t here_ns) const;
  // How far off there_ns(here_ns) may be, if the clocks drift apart steadily.
  std::int64_t uncertainty_ns(std::int64_t here_ns) const;

 private:
  // Place of `here_ns` between the first sample (0) and the last (1), or beyond.
  double place(std::int64_t here_ns) const;
  std::deque<ClockSample> samples_;
};

}  // namespace mb
