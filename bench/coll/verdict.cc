#include "bench/coll/verdict.h"

#include <algorithm>
#include <cmath>

namespace mb {
namespace {

constexpr double kLeastShare = 0.25;  // of the completion: smaller effects are not worth a name
constexpr double kLeastNs = 1000;
constexpr double kLeastCrowdedNs = 1e6;
constexpr double kDeviations = 4;

bool is_far(double excess, double deviation, double floor) {
  return excess > floor && excess > kDeviations * deviation;
}

// The median once `members` are left out.
double median_without(const std::vector<double>& values, const std::vector<int>& members) {
  std::vector<double> others;
  for (int k = 0; k < static_cast<int>(values.size()); ++k) {
    if (std::find(members.begin(), members.end(), k) == members.end()) others.push_back(values[k]);
  }
  return others.empty() ? 0 : median(others);
}

}  // namespace

std::string_view name_of(Fault fault) {
  switch (fault) {
    case Fault::none:
      return "none";
    case Fault::late_rank:
      return "late_rank";
    case Fault::slow_rank:
      return "slow_rank";
    case Fault::slow_link:
      return "slow_link";
    case Fault::slow_group:
      return "slow_group";
  }
  return "?";
}

Verdict judge_group(const Samples& samples, double uncertainty_ns, bool crowded) {
  if (samples.members() < 2 || samples.operations() < 6) return {};
  const std::vector<MemberTimes> times = member_times(samples);
  const double completion = median(completions_ns(samples));
  const double floor = std::max(
      {kLeastShare * completion, crowded ? kLeastCrowdedNs : kLeastNs, 2 * uncertainty_ns});

  int latest = 0;
  for (int k = 1; k < samples.members(); ++k) {
    if (times[k].late_ns > times[latest].late_ns) latest = k;
  }
  if (is_far(times[latest].late_ns, times[latest].late_deviation_ns, floor))
    return {Fault::late_rank, {latest}, times[latest].late_ns};

  std::vector<double> transfers;
  for (const MemberTimes& member : times) transfers.push_back(member.transfer_ns);
  std::vector<int> by_transfer(samples.members());
  for (int k = 0; k < samples.members(); ++k) by_transfer[k] = k;
  std::sort(by_transfer.begin(), by_transfer.end(),
            [&](int a, int b) { return transfers[a] > transfers[b]; });
  const int first = by_transfer[0], second = by_transfer[1];
  const auto stands_out = [&](int member, const std::vector<int>& besides) {
    return is_far(transfers[member] - median_without(transfers, besides),
                  times[member].transfer_deviation_ns, floor);
  };
  const bool neighbours =
      std::abs(first - second) == 1 || std::abs(first - second) == samples.members() - 1;
  const std::vector<int> two = {std::min(first, second), std::max(first, second)};
  if (samples.members() > 2 && neighbours && stands_out(first, two) && stands_out(second, two) &&
      transfers[second] > transfers[first] / 2)
    return {Fault::slow_link, two, transfers[second] - median_without(transfers, two)};
  if (samples.members() > 2 && stands_out(first, {first}))
    return {Fault::slow_rank, {first}, transfers[first] - median_without(transfers, {first})};
  return {};
}

Verdict judge_groups(std::span<const Distribution> completions, bool crowded) {
  const int groups = static_cast<int>(completions.size());
  if (groups < 2) return {};
  std::vector<double> medians;
  for (const Distribution& group : completions) medians.push_back(group.p50);
  const int slowest =
      static_cast<int>(std::max_element(medians.begin(), medians.end()) - medians.begin());
  const double others = median_without(medians, {slowest});
  const double least = std::max(kLeastShare * others, crowded ? kLeastCrowdedNs : kLeastNs);
  if (medians[slowest] - others <= least) return {};
  const auto& own = completions[slowest].interval;
  for (int g = 0; g < groups; ++g) {
    const auto& other = completions[g].interval;
    if (g != slowest && (!own || !other || other->high >= own->low)) return {};
  }
  return {Fault::slow_group, {slowest}, medians[slowest] - others};
}

}  // namespace mb
