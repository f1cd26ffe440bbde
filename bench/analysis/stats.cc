#include "bench/analysis/stats.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

namespace mb {
namespace {

std::vector<double> sorted(std::span<const double> samples) {
  assert(!samples.empty());
  std::vector<double> out(samples.begin(), samples.end());
  std::sort(out.begin(), out.end());
  return out;
}

// P(X = k) for X binomial with n trials of 1/2, by logarithms so that n may be large.
double binomial_half(int n, int k) {
  return std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) -
                  n * std::log(2.0));
}

}  // namespace

double mean(std::span<const double> samples) {
  assert(!samples.empty());
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double median(std::span<const double> samples) { return percentile(samples, 0.5); }

double percentile(std::span<const double> samples, double share) {
  const std::vector<double> values = sorted(samples);
  const double place = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return std::lerp(values[low], values[high], place - static_cast<double>(low));
}

std::optional<double> stdev(std::span<const double> samples) {
  if (samples.size() < 2) return std::nullopt;
  const double center = mean(samples);
  double sum = 0;
  for (double x : samples) sum += (x - center) * (x - center);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

double median_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> distances;
  for (double x : samples) distances.push_back(std::abs(x - center));
  return median(distances);
}

double hodges_lehmann(std::span<const double> samples) {
  std::vector<double> means;
  for (std::size_t i = 0; i < samples.size(); ++i)
    for (std::size_t j = i; j < samples.size(); ++j)
      means.push_back(std::midpoint(samples[i], samples[j]));
  return median(means);
}

std::optional<Range> median_interval_95(std::span<const double> samples) {
  const std::vector<double> values = sorted(samples);
  const int n = static_cast<int>(values.size());
  int rank = 0;  // the interval is [rank-th smallest, rank-th largest], counted from 1
  for (double below = binomial_half(n, 0); rank + 1 <= n / 2 && below <= 0.025;) {
    ++rank;
    below += binomial_half(n, rank);
  }
  if (rank == 0) return std::nullopt;
  return Range{values[rank - 1], values[n - rank]};
}

}  // namespace mb
