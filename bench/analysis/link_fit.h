// Latency and bandwidth of a link from the times of transfers of several sizes.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace mb {

// One transfer: bytes on the busiest link, and how many messages follow each other on the way (of
// a ring's all-reduce over n ranks 2 (n - 1)).
struct LinkSample {
  double bytes = 0, seconds = 0, steps = 1;
};

// seconds = steps * latency_s + bytes / bytes_per_s.
struct LinkFit {
  std::optional<double> latency_s, bytes_per_s;  // both or neither
  std::string reason;                            // why there is none
  int samples = 0, sizes = 0;                    // taken; different sizes among them
  double error = 0;                              // median of |fit / seconds - 1|
};

// Least squares of relative errors, transfers that stand out weighed down by Tukey's biweight
// (Beaton and Tukey, Technometrics 16(2), 1974; Holland and Welsch, 1977, for its constant).
// A latency is never below 0. Transfers that took no time are left out. None for fewer than two
// sizes, and where time does not grow with size.
LinkFit fit_link(std::span<const LinkSample> samples);

}  // namespace mb
