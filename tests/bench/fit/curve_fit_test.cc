#include "bench/fit/curve_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

constexpr auto kKind = CollectiveKind::all_reduce;

std::vector<SizeTime> times_of(const Curve& curve, double noise = 0) {
  std::vector<SizeTime> times;
  std::uint64_t draw = 0;
  for (double bytes = 1024; bytes <= 1 << 30; bytes *= 2)
    times.push_back(
        {bytes, seconds_at(curve, bytes) * std::exp(noise * random_normal(1, 1, draw++))});
  return times;
}

TEST(CurveFit, FindsTheSegmentsThatMadeTheTimes) {
  const Curve curve{kKind, 8, {{92682, 10, 5}, {5931642, 25, 60}, {1e18, 90, 240}}};
  const CurveFit fit = fit_curve(times_of(curve));
  ASSERT_EQ(fit.segments.size(), 3u);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(fit.segments[s].latency_us, curve.segments[s].latency_us, 1e-6);
    EXPECT_NEAR(fit.segments[s].gb_per_s, curve.segments[s].gb_per_s, 1e-6);
  }
  EXPECT_NEAR(fit.segments[0].bytes, curve.segments[0].bytes, 1) << "between two sizes";
  EXPECT_LT(fit.error, 1e-9);
}

TEST(CurveFit, IsAsFarOffOnSizesThatWereLeftOutAsTimesAreNoisy) {
  const CurveFit fit = fit_curve(times_of({kKind, 8, {{1e18, 12, 100}}}, 0.03));
  EXPECT_NEAR(fit.segments.back().gb_per_s, 100, 5);
  EXPECT_GT(fit.held_out, 0.5 * fit.error);
  EXPECT_LT(fit.held_out, 0.06);
}

TEST(CurveFit, NeitherLatencyNorRateIsEverImpossible) {
  const CurveFit falling = fit_curve({{1e3, 9e-6}, {2e3, 8e-6}, {4e3, 7e-6}, {8e3, 6e-6}});
  const CurveFit early = fit_curve({{1e3, 1e-9}, {2e3, 1e-6}, {4e3, 3e-6}, {8e3, 9e-6}});
  for (const CurveFit& fit : {falling, early}) check_curve({kKind, 2, fit.segments}, "fit");
}

TEST(CurveFit, TimesOfOneSizeAreOneSize) {
  EXPECT_NE(message_of([] {
              fit_curve({{1, 1}, {1, 1}, {1, 1}, {2, 1}, {3, 1}});
            }).find("3 sizes; a curve takes 4"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
