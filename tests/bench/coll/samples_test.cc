#include "bench/coll/samples.h"

#include <gtest/gtest.h>

#include "tests/bench/coll/synthetic.h"

namespace mb {
namespace {

// Two operations of three members.
const Samples kSamples = {.start = {{0, 100}, {10, 100}, {4, 130}},
                          .end = {{50, 160}, {55, 140}, {52, 150}}};

TEST(Samples, CompletionIsFromTheLastStartToTheLastEnd) {
  EXPECT_EQ(completions_ns(kSamples), (std::vector<double>{45, 30}));
  EXPECT_EQ(arrival_skews_ns(kSamples), (std::vector<double>{10, 30}));
}

TEST(Samples, WaitEndsAndTransferBeginsWhenTheLastMemberStarts) {
  const std::vector<MemberTimes> times = member_times(kSamples);
  EXPECT_EQ(times[0].wait_ns, (10 + 30) / 2.0);
  EXPECT_EQ(times[0].transfer_ns, (40 + 30) / 2.0);
  EXPECT_EQ(times[1].wait_ns, (0 + 30) / 2.0);
  EXPECT_EQ(times[2].wait_ns, (6 + 0) / 2.0);
  EXPECT_EQ(times[1].arrived_last, 1);
  EXPECT_EQ(times[2].arrived_last, 1);
  EXPECT_EQ(times[0].arrived_last, 0);
}

TEST(Samples, MemberThatLeavesBeforeTheLastComesWaitsNoLongerThanItIsThere) {
  const Samples early = {.start = {{0}, {100}}, .end = {{20}, {150}}};
  EXPECT_EQ(member_times(early)[0].wait_ns, 20);
  EXPECT_EQ(member_times(early)[0].transfer_ns, 0);
  EXPECT_EQ(completions_ns(early), std::vector<double>{50});
}

TEST(Samples, MeanOfRanksIsThatOfTheirOwnDurations) {
  EXPECT_DOUBLE_EQ(mean(durations_ns(kSamples)), (50 + 60 + 45 + 40 + 48 + 20) / 6.0);
}

TEST(Samples, DistributionHoldsPercentilesOfTheSlowestMember) {
  std::vector<double> values;
  for (int i = 1000; i >= 0; --i) values.push_back(i);
  const Distribution d = distribution(values);
  EXPECT_EQ(d.n, 1001);
  EXPECT_EQ(d.min, 0);
  EXPECT_EQ(d.p50, 500);
  EXPECT_EQ(d.p95, 950);
  EXPECT_EQ(d.p99, 990);
  EXPECT_EQ(d.p999, 999);
  EXPECT_EQ(d.max, 1000);
  EXPECT_EQ(d.outliers, 0);
  EXPECT_TRUE(d.interval && d.interval->low < 500 && d.interval->high > 500);
}

TEST(Samples, FiveOperationsHaveNoInterval) {
  EXPECT_FALSE(distribution(std::vector<double>{1, 2, 3, 4, 5}).interval);
  EXPECT_FALSE(relative_half_width(std::vector<double>{1, 2, 3, 4, 5}));
}

TEST(Samples, DriftIsToldFromNoise) {
  int noisy = 0, drifting = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<double> steady, rising;
    for (int i = 0; i < 120; ++i) {
      const double noise = 1 + 0.05 * random_normal(run, 3, i);
      steady.push_back(100 * noise);
      rising.push_back(100 * noise * (1 + 0.2 * i / 120.0));
    }
    noisy += drifts(steady);
    drifting += drifts(rising);
  }
  EXPECT_LE(noisy, 2);
  EXPECT_GE(drifting, 198);
}

TEST(Samples, OperationsOfBatchesFollowEachOther) {
  Samples all;
  all.append(kSamples);
  all.append(kSamples);
  EXPECT_EQ(all.operations(), 4);
  EXPECT_EQ(completions_ns(all), (std::vector<double>{45, 30, 45, 30}));
}

// Times that stay at one level for long and then at another: the values alone, taken as
// independent, would say that the median is known.
TEST(Samples, HalfWidthSeesLevelsThatLast) {
  std::vector<double> alternating, levels;
  for (int i = 0; i < 12'000; ++i) {
    alternating.push_back(i % 5 < 3 ? 100 : 110);
    levels.push_back(i / 1000 % 5 < 3 ? 100 : 110);
  }
  EXPECT_LT(*relative_half_width(alternating), 0.01);
  EXPECT_GT(*relative_half_width(levels), 0.03);
}

// A skew that is nothing for most of the time and then large has no interval below nothing.
TEST(Samples, IntervalOfTheMedianStaysAmongTheValues) {
  std::vector<double> skews(600, 1.0);
  for (int i = 500; i < 600; ++i) skews[i] = 1000;
  const std::optional<Range> interval = median_interval_in_order(skews);
  EXPECT_EQ(interval->low, 1);
  EXPECT_GT(interval->high, 100);
  EXPECT_LE(interval->high, 1000);
}

}  // namespace
}  // namespace mb
