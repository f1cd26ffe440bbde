#include "parallel/comm/clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/error.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

// A clock that was `offset_ns` ahead at 0 and gains `drift` ns every ns.
struct Drifting {
  double offset_ns = 0, drift = 0;
  std::int64_t at(std::int64_t here_ns) const {
    return here_ns + std::llround(offset_ns + drift * static_cast<double>(here_ns));
  }
};

// Round trips from `start_ns` on whose two ways take from 1 to 1 + `jitter_us` us, each by itself.
std::vector<RoundTrip> trips(const Drifting& clock, std::int64_t start_ns, int jitter_us,
                             int seed) {
  std::vector<RoundTrip> all;
  std::int64_t now = start_ns;
  for (int i = 0; i < 64; ++i) {
    const auto way = [&](int k) {
      return 1000 +
             static_cast<std::int64_t>(1000.0 * jitter_us *
                                       random_uniform(seed, k, static_cast<std::uint64_t>(i)));
    };
    const std::int64_t there = now + way(0), back = there + way(1);
    all.push_back({now, clock.at(there), back});
    now = back + 500;
  }
  return all;
}

TEST(BestOf, TakesTheShortestTripAndItsMiddle) {
  const RoundTrip trips[] = {{0, 700, 1000}, {2000, 2650, 2200}, {3000, 3900, 4000}};
  const ClockSample best = best_of(trips);
  EXPECT_EQ(best.here_ns, 2100);
  EXPECT_EQ(best.offset_ns, 550);
  EXPECT_EQ(best.uncertainty_ns, 100.5);
}

TEST(BestOf, WantsATrip) {
  EXPECT_EQ(message_of([] { best_of({}); }), "clocks want at least one round trip");
}

TEST(BestOf, IsOffByNoMoreThanItSays) {
  for (int seed = 0; seed < 200; ++seed) {
    const Drifting clock{1e9 * (random_uniform(seed, 9, 0) - 0.5), 0};
    const ClockSample best = best_of(trips(clock, 1000, 1 + seed % 50, seed));
    EXPECT_LE(std::abs(best.offset_ns - clock.offset_ns), best.uncertainty_ns) << seed;
  }
}

TEST(ClockLine, WithoutSamplesLeavesTheClockAsItIs) {
  const ClockLine line;
  EXPECT_EQ(line.there_ns(12345), 12345);
  EXPECT_EQ(line.uncertainty_ns(12345), 0);
}

// Between samples, beyond them, and after old ones have been dropped.
TEST(ClockLine, FollowsDriftAndIsOffByNoMoreThanItSays) {
  constexpr std::int64_t second = 1'000'000'000;
  for (int seed = 0; seed < 50; ++seed) {
    const Drifting clock{1e9 * (random_uniform(seed, 9, 0) - 0.5),
                         1e-4 * (random_uniform(seed, 9, 1) - 0.5)};
    ClockLine line;
    for (int sample = 0; sample < 30; ++sample) {
      line.add(best_of(trips(clock, sample * second, 20, 100 * seed + sample)));
      if (sample == 0) continue;  // no drift is known yet
      for (const std::int64_t later : {-second / 2, std::int64_t{0}, second}) {
        const std::int64_t here = sample * second + later;
        EXPECT_LE(std::abs(line.there_ns(here) - clock.at(here)), line.uncertainty_ns(here) + 1)
            << "seed " << seed << ", sample " << sample << ", " << later << " ns later";
      }
    }
    EXPECT_LT(line.uncertainty_ns(30 * second), 25'000);
  }
}

}  // namespace
}  // namespace mb
