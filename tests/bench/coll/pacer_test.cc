#include "bench/coll/pacer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/analysis/stats.h"
#include "bench/coll/samples.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

TEST(Pacer, BeginsWithTheLeastAndDoubles) {
  const PacerOptions options{.least = 10, .most = 1000};
  EXPECT_EQ(next_batch(options, 0, {}, 0), 10);
  EXPECT_EQ(next_batch(options, 10, 0.5, 0.001), 10);
  EXPECT_EQ(next_batch(options, 320, 0.5, 0.032), 320);
  EXPECT_EQ(next_batch(options, 640, 0.5, 0.064), 360);
  EXPECT_EQ(next_batch(options, 1000, 0.5, 0.1), 0);
}

TEST(Pacer, StopsWhenTheMedianIsKnownOrTimeIsUp) {
  const PacerOptions options{.interval = 0.02, .time_cap_s = 0.5, .least = 10};
  EXPECT_EQ(next_batch(options, 20, 0.019, 0.03), 0);
  EXPECT_GT(next_batch(options, 20, 0.021, 0.01), 0);
  EXPECT_EQ(next_batch(options, 20, 0.5, 0.5), 0);
  EXPECT_EQ(next_batch(options, 16, 0.5, 0.375), 5) << "as many as fit";
}

// A narrow interval of two microseconds says nothing of the next millisecond.
TEST(Pacer, GoesOnForTheLeastTime) {
  const PacerOptions options{.time_cap_s = 0.5, .time_least_s = 0.02, .least = 10, .most = 1000};
  EXPECT_EQ(next_batch(options, 10, 0.001, 2e-6), 10);
  EXPECT_EQ(next_batch(options, 640, 0.001, 0.019), 360);
  EXPECT_EQ(next_batch(options, 640, 0.001, 0.021), 0);
  EXPECT_EQ(next_batch(options, 1000, 0.001, 2e-4), 0) << "there are no more to take";
  const PacerOptions brief{.time_cap_s = 0.001, .time_least_s = 0.02};
  EXPECT_EQ(next_batch(brief, 10, 0.001, 0.001), 0) << "the cap is less";
}

TEST(Pacer, TakesTheLeastThoughTimeIsUpButNotForEver) {
  const PacerOptions options{.time_cap_s = 0.5, .least = 10};
  EXPECT_EQ(next_batch(options, 4, {}, 0.6), 1);
  EXPECT_EQ(next_batch(options, 4, {}, 2.0), 0);
}

TEST(Pacer, WarmUpEndsWhenTimesNoLongerFall) {
  EXPECT_FALSE(is_warm(std::vector<double>{100}));
  EXPECT_FALSE(is_warm(std::vector<double>{100, 80}));
  EXPECT_TRUE(is_warm(std::vector<double>{100, 80, 79}));
  EXPECT_TRUE(is_warm(std::vector<double>{80, 100}));
}

// The stopping rule looks several times, and the interval must still hold the median as often as it
// says. Times are lognormal with stalls; the median is known.
TEST(Pacer, IntervalHoldsTheMedianInNineteenOfTwentyRuns) {
  constexpr int kRuns = 1000;
  const PacerOptions options{
      .interval = 0.02, .time_cap_s = 1e9, .time_least_s = 0, .least = 10, .most = 2000};
  int held = 0, met = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> times;
    std::optional<double> width;
    while (const std::int64_t next =
               next_batch(options, static_cast<std::int64_t>(times.size()), width, 1e-3)) {
      for (std::int64_t i = 0; i < next; ++i)
        times.push_back(std::exp(0.2 * random_normal(run, 5, times.size())));
      width = relative_half_width(times);
    }
    const auto interval = median_interval_95(times);
    held += interval->low <= 1 && 1 <= interval->high;
    met += *width <= options.interval;
  }
  EXPECT_GE(held, 0.93 * kRuns);
  EXPECT_LE(held, 0.98 * kRuns);
  EXPECT_GE(met, 0.9 * kRuns);
}

}  // namespace
}  // namespace mb
