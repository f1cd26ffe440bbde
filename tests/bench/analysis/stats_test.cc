#include "bench/analysis/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace mb {
namespace {

using Samples = std::vector<double>;

TEST(Stats, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median(Samples{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(Samples{7}), 7);
}

TEST(Stats, PercentilesInterpolateAsNumpy) {
  const Samples samples = {15, 20, 35, 40, 50};  // numpy.percentile(samples, 40) == 29
  EXPECT_DOUBLE_EQ(percentile(samples, 0.4), 29);
  EXPECT_EQ(percentile(samples, 0), 15);
  EXPECT_EQ(percentile(samples, 1), 50);
}

TEST(Stats, StdevDividesByOneLessAndNeedsTwoSamples) {
  EXPECT_DOUBLE_EQ(*stdev(Samples{2, 4}), std::sqrt(2.0));
  EXPECT_FALSE(stdev(Samples{2}).has_value());
}

TEST(Stats, OneOutlierMovesNeitherMedianDeviationNorHodgesLehmannMuch) {
  const Samples samples = {10, 11, 12, 13, 1000};
  EXPECT_EQ(median_deviation(samples), 1);
  EXPECT_EQ(hodges_lehmann(samples), 12);  // the eighth of 15 pair means
}

// Binomial tables: n = 6 takes the extremes (96.9 %), n = 10 the second (97.9 %), n = 20 the sixth
// (95.9 %).
TEST(Stats, MedianIntervalIsTheTabulatedPairOfOrderStatistics) {
  Samples samples;
  const auto interval_of_first = [&](int n) {
    samples.clear();
    for (int i = 1; i <= n; ++i) samples.push_back(i);
    return median_interval_95(samples);
  };
  EXPECT_FALSE(interval_of_first(5).has_value());
  EXPECT_EQ(interval_of_first(6)->low, 1);
  EXPECT_EQ(interval_of_first(6)->high, 6);
  EXPECT_EQ(interval_of_first(10)->low, 2);
  EXPECT_EQ(interval_of_first(10)->high, 9);
  EXPECT_EQ(interval_of_first(20)->low, 6);
  EXPECT_EQ(interval_of_first(20)->high, 15);
}

}  // namespace
}  // namespace mb
