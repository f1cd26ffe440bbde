#include "parallel/comm/clock.h"

#include <algorithm>
#include <cmath>

#include "workloads/base/error.h"

namespace mb {
namespace {

// Long enough for a steady slope, short enough that the drift is still the same.
constexpr std::size_t kSamples = 16;

}  // namespace

ClockSample best_of(std::span<const RoundTrip> trips) {
  require(!trips.empty(), "clocks want at least one round trip");
  const RoundTrip& best =
      *std::min_element(trips.begin(), trips.end(), [](const RoundTrip& a, const RoundTrip& b) {
        return a.back_ns - a.sent_ns < b.back_ns - b.sent_ns;
      });
  const std::int64_t took = best.back_ns - best.sent_ns, middle = best.sent_ns + took / 2;
  return {middle, static_cast<double>(best.there_ns - middle), 0.5 * static_cast<double>(took + 1)};
}

void ClockLine::add(const ClockSample& sample) {
  samples_.push_back(sample);
  if (samples_.size() > kSamples) samples_.pop_front();
}

double ClockLine::place(std::int64_t here_ns) const {
  const ClockSample &first = samples_.front(), &last = samples_.back();
  if (first.here_ns == last.here_ns) return 0;
  return static_cast<double>(here_ns - first.here_ns) /
         static_cast<double>(last.here_ns - first.here_ns);
}

std::int64_t ClockLine::there_ns(std::int64_t here_ns) const {
  if (samples_.empty()) return here_ns;
  const double p = place(here_ns);
  return here_ns +
         std::llround((1 - p) * samples_.front().offset_ns + p * samples_.back().offset_ns);
}

std::int64_t ClockLine::uncertainty_ns(std::int64_t here_ns) const {
  if (samples_.empty()) return 0;
  const double p = place(here_ns);
  return std::llround(std::ceil(std::abs(1 - p) * samples_.front().uncertainty_ns +
                                std::abs(p) * samples_.back().uncertainty_ns));
}

}  // namespace mb
