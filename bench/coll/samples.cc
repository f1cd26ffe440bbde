#include "bench/coll/samples.h"

#include <algorithm>
#include <cmath>

namespace mb {
namespace {

std::vector<std::int64_t> last_of(const std::vector<std::vector<std::int64_t>>& times) {
  std::vector<std::int64_t> last = times.front();
  for (const auto& member : times) {
    for (std::size_t i = 0; i < last.size(); ++i) last[i] = std::max(last[i], member[i]);
  }
  return last;
}

std::int64_t middle(std::vector<std::int64_t>& values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

// How much later than the median of the others each member starts each operation.
std::vector<double> lateness(const Samples& samples, int member) {
  std::vector<double> late;
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < samples.operations(); ++i) {
    others.clear();
    for (int k = 0; k < samples.members(); ++k) {
      if (k != member) others.push_back(samples.start[k][i]);
    }
    late.push_back(others.empty() ? 0
                                  : static_cast<double>(samples.start[member][i] - middle(others)));
  }
  return late;
}

}  // namespace

void Samples::append(const Samples& more) {
  start.resize(more.start.size());
  end.resize(more.end.size());
  for (std::size_t k = 0; k < start.size(); ++k) {
    start[k].insert(start[k].end(), more.start[k].begin(), more.start[k].end());
    end[k].insert(end[k].end(), more.end[k].begin(), more.end[k].end());
  }
}

std::vector<double> completions_ns(const Samples& samples) {
  if (samples.operations() == 0) return {};
  const auto starts = last_of(samples.start), ends = last_of(samples.end);
  std::vector<double> times;
  for (std::size_t i = 0; i < starts.size(); ++i)
    times.push_back(static_cast<double>(ends[i] - starts[i]));
  return times;
}

std::vector<double> arrival_skews_ns(const Samples& samples) {
  if (samples.operations() == 0) return {};
  const auto last = last_of(samples.start);
  std::vector<double> skews;
  for (std::size_t i = 0; i < last.size(); ++i) {
    std::int64_t first = last[i];
    for (const auto& member : samples.start) first = std::min(first, member[i]);
    skews.push_back(static_cast<double>(last[i] - first));
  }
  return skews;
}

std::vector<MemberTimes> member_times(const Samples& samples) {
  std::vector<MemberTimes> all(samples.members());
  if (samples.operations() == 0) return all;
  const auto last = last_of(samples.start);
  for (int k = 0; k < samples.members(); ++k) {
    std::vector<double> waits, transfers;
    for (std::size_t i = 0; i < last.size(); ++i) {
      const std::int64_t start = samples.start[k][i], end = samples.end[k][i];
      waits.push_back(static_cast<double>(std::min(last[i], end) - start));
      transfers.push_back(static_cast<double>(std::max(std::int64_t{0}, end - last[i])));
      all[k].arrived_last += start == last[i];
    }
    const std::vector<double> late = lateness(samples, k);
    all[k].wait_ns = median(waits);
    all[k].transfer_ns = median(transfers);
    all[k].late_ns = median(late);
    all[k].late_deviation_ns = median_deviation(late);
    all[k].transfer_deviation_ns = median_deviation(transfers);
  }
  return all;
}

std::vector<double> durations_ns(const Samples& samples) {
  std::vector<double> durations;
  for (int k = 0; k < samples.members(); ++k) {
    for (std::int64_t i = 0; i < samples.operations(); ++i)
      durations.push_back(static_cast<double>(samples.end[k][i] - samples.start[k][i]));
  }
  return durations;
}

std::optional<Range> median_interval_in_order(std::span<const double> values) {
  constexpr std::size_t kParts = 12, kLeastInPart = 5;
  constexpr double kStudent = 2.201;  // 0.975 quantile with kParts - 1 degrees of freedom
  std::optional<Range> interval = median_interval_95(values);
  const std::size_t each = values.size() / kParts;
  if (!interval || each < kLeastInPart) return interval;
  std::vector<double> medians;
  for (std::size_t k = 0; k < kParts; ++k)
    medians.push_back(median(values.subspan(k * each, each)));
  const double center = median(values);
  const double width = kStudent * *stdev(medians) / std::sqrt(kParts);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return Range{std::min(interval->low, std::max(*least, center - width)),
               std::max(interval->high, std::min(*most, center + width))};
}

Distribution distribution(std::span<const double> values) {
  constexpr double kNormal = 1.4826, kFar = 5;  // a normal standard deviation by the median one
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  Distribution d{.n = static_cast<std::int64_t>(sorted.size()),
                 .min = sorted.front(),
                 .p50 = percentile(sorted, 0.5),
                 .p95 = percentile(sorted, 0.95),
                 .p99 = percentile(sorted, 0.99),
                 .p999 = percentile(sorted, 0.999),
                 .max = sorted.back(),
                 .deviation = median_deviation(sorted),
                 .interval = median_interval_in_order(values)};
  const double far = kFar * kNormal * d.deviation;
  d.outliers = std::count_if(sorted.begin(), sorted.end(),
                             [&](double x) { return std::abs(x - d.p50) > far; });
  return d;
}

std::optional<double> relative_half_width(std::span<const double> values) {
  const std::optional<Range> interval = median_interval_in_order(values);
  const double center = median(values);
  if (!interval || center <= 0) return std::nullopt;
  return std::max(center - interval->low, interval->high - center) / center;
}

bool drifts(std::span<const double> values) {
  constexpr double kLeast = 0.05;
  const std::size_t third = values.size() / 3;
  if (third == 0) return false;
  const auto first = values.first(third), last = values.last(third);
  const auto a = median_interval_95(first), b = median_interval_95(last);
  if (!a || !b || (a->low <= b->high && b->low <= a->high)) return false;
  return std::abs(median(last) - median(first)) > kLeast * median(first);
}

}  // namespace mb
