// Summaries of repeated measurements. All take samples in any order and at least one of them.
#pragma once

#include <optional>
#include <span>

namespace mb {

double mean(std::span<const double> samples);
double median(std::span<const double> samples);
// Linear interpolation between order statistics (Hyndman and Fan's type 7, numpy's default);
// `share` in [0, 1].
double percentile(std::span<const double> samples, double share);
// With n - 1; nullopt for one sample.
std::optional<double> stdev(std::span<const double> samples);
// Median absolute deviation from the median, not scaled.
double median_deviation(std::span<const double> samples);
// Median of the means of all pairs, each sample with itself too (Hodges and Lehmann, 1963).
double hodges_lehmann(std::span<const double> samples);

struct Range {
  double low = 0, high = 0;
};
// Order statistics that hold the median with at least 95 % whatever the distribution, by the
// binomial one (Conover, Practical Nonparametric Statistics); nullopt below six samples, where
// none do.
std::optional<Range> median_interval_95(std::span<const double> samples);

}  // namespace mb
