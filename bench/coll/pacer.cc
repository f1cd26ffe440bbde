#include "bench/coll/pacer.h"

#include <algorithm>

namespace mb {

std::int64_t next_batch(const PacerOptions& options, std::int64_t n,
                        std::optional<double> half_width, double elapsed_s) {
  if (n == 0) return std::min({options.least, options.most, options.batch});
  const double time_least_s = std::min(options.time_least_s, options.time_cap_s);
  const bool enough = n >= options.least && elapsed_s >= time_least_s;
  if (n >= options.most) return 0;
  if (enough &&
      (elapsed_s >= options.time_cap_s || (half_width && *half_width <= options.interval)))
    return 0;
  if (elapsed_s >= 4 * options.time_cap_s) return 0;
  const double each_s = std::max(1e-9, elapsed_s / static_cast<double>(n));
  const double left_s = std::max(0.0, options.time_cap_s - elapsed_s);
  const auto fit = static_cast<std::int64_t>(std::min(left_s / each_s, 1e9));
  const std::int64_t wanted = std::max<std::int64_t>(1, std::min(n, fit));
  return std::min({wanted, options.most - n, options.batch});
}

bool is_warm(std::span<const double> medians) {
  const std::size_t n = medians.size();
  return n >= 2 && medians[n - 1] >= 0.95 * medians[n - 2];
}

}  // namespace mb
