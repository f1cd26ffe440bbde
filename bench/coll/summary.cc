#include "bench/coll/summary.h"

#include <algorithm>
#include <cmath>

#include "bench/coll/buffers.h"
#include "parallel/cost/network.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& value : values) value *= by;
  return values;
}

double median_completion(const GroupResult& group, Series series) {
  return median(completions_ns(group.of(series)));
}

// Whether what all members read and write may stay in caches. A virtual machine is told of caches
// that it shares with others, so that it counts on 64 MiB of them at most.
bool stays_in_caches(const CollCall& call) {
  constexpr std::int64_t kCountedOn = 64 << 20;
  std::int64_t bytes = 0;
  for (int k = 0; k < call.members; ++k)
    bytes += (elements_in(call, k) + elements_out(call, k)) * size_of(call.type);
  return bytes < 2 * std::min(last_level_cache_bytes(), kCountedOn);
}

// Nodes of the members of all groups that are at it at once.
std::vector<std::vector<int>> nodes_of(const CollConfig& config, const PointResult& result) {
  std::vector<std::vector<int>> nodes;
  for (const GroupResult& group : result.groups) nodes.push_back(config.mesh.nodes_of(group.ranks));
  return nodes;
}

// Between nodes, what NICs leave of the largest operation: links alone do not know who shares them.
double ceiling_on(const Machine& machine, CollectiveKind kind, Algorithm algorithm,
                  const std::vector<int>& nodes, const GroupSpread& spread) {
  if (spread.nodes < 2) return *busbw_ceiling(kind, algorithm, nodes, machine);
  constexpr std::int64_t kLarge = std::int64_t{1} << 50;
  Machine links = machine;
  links.curves = "none";
  return busbw_factor(kind, spread.ranks) * kLarge /
         group_seconds(kind, algorithm, kLarge, nodes, spread, links);
}

void expect_ceiling(const CollConfig& config, Algorithm algorithm, const GroupResult& group,
                    const Surroundings& around, const GroupSpread& spread, Expected& expected) {
  const CollectiveKind kind = *kind_of(group.call.operation);
  const int n = static_cast<int>(group.ranks.size());
  if (around.mode != "threads") {
    if (!around.machine) {
      expected.ceiling_by = "no machine= to compare with";
      return;
    }
    expected.busbw_ceiling =
        ceiling_on(*around.machine, kind, algorithm, config.mesh.nodes_of(group.ranks), spread);
    expected.ceiling_by =
        cat(spread.nodes > 1 ? "links and NICs of " : "links of ", around.machine->name);
  } else if (algorithm != Algorithm::own) {
    expected.ceiling_by = "the memory ceiling is that of algorithm=own";
  } else if (stays_in_caches(group.call)) {
    expected.ceiling_by = "the buffers may stay in caches";
  } else if (!around.memory_bytes_per_s) {
    expected.ceiling_by = "memory was not measured";
  } else {
    expected.busbw_ceiling = memory_ceiling(kind, n, *around.memory_bytes_per_s);
    expected.ceiling_by = cat("memory at ", format_bandwidth(*around.memory_bytes_per_s),
                              ", measured before the run");
  }
}

Expected expect(const CollConfig& config, const PointResult& result, const GroupResult& group,
                const Surroundings& around, const GroupSummary& summary) {
  const Algorithm algorithm = result.point.algorithm;
  const std::vector<int> nodes = config.mesh.nodes_of(group.ranks);
  Expected expected{.link = link_class(nodes)};
  const auto kind = kind_of(group.call.operation);
  if (!kind || nodes.size() < 2) {
    expected.ceiling_by = kind ? "one rank moves nothing" : "a barrier moves nothing";
    return expected;
  }
  expected.wire = wire_of(*kind, algorithm, summary.bytes, nodes);
  GroupSpread spread;
  if (around.machine) {
    spread = spread_of(nodes_of(config, result), *around.machine);
    expected.seconds =
        group_seconds(*kind, algorithm, summary.bytes, nodes, spread, *around.machine);
  }
  expect_ceiling(config, algorithm, group, around, spread, expected);
  if (expected.busbw_ceiling && summary.busbw)
    expected.fraction = *summary.busbw / *expected.busbw_ceiling;
  return expected;
}

OverlapSummary overlap_of(const GroupResult& group) {
  OverlapSummary o{.operation_ns = median_completion(group, Series::operation),
                   .compute_ns = median_completion(group, Series::compute),
                   .both_ns = median_completion(group, Series::both)};
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  if (o.compute_ns <= 2 * o.operation_ns)
    o.efficiency =
        ratio(o.operation_ns + o.compute_ns - o.both_ns, std::min(o.operation_ns, o.compute_ns));
  o.operation_slow_down =
      ratio(median_completion(group, Series::operation_in_both), o.operation_ns);
  o.compute_slow_down = ratio(median_completion(group, Series::compute_in_both), o.compute_ns);
  return o;
}

GroupSummary summarize_group(const CollConfig& config, const GroupResult& group,
                             const Surroundings& around, const PointResult& result) {
  const Samples& samples = group.of(Series::operation);
  const std::vector<double> times =
      scaled(completions_ns(samples), share_of_time(group.call.operation));
  GroupSummary s{
      .completion = distribution(times),
      .skew = distribution(arrival_skews_ns(samples)),
      .mean_duration_ns = mean(durations_ns(samples)) * share_of_time(group.call.operation),
      .members = member_times(samples),
      .bytes = bytes_of(group.call),
      .factor = factor_of(group.call)};
  if (has_size(group.call.operation) && s.completion.p50 > 0 && around.no_speed.empty())
    s.algbw = static_cast<double>(s.bytes) / (1e-9 * s.completion.p50);
  if (s.algbw && s.factor) s.busbw = *s.algbw * *s.factor;
  s.expected = expect(config, result, group, around, s);
  s.verdict = judge_group(samples, result.clock_uncertainty_ns, group.crowded);
  s.drifts = drifts(times);
  if (group.of(Series::submit).operations() > 0)
    s.submit = distribution(durations_ns(group.of(Series::submit)));
  if (group.of(Series::alone).operations() > 0)
    s.alone_ns = median_completion(group, Series::alone);
  if (group.of(Series::both).operations() > 0) s.overlap = overlap_of(group);
  const double n = static_cast<double>(s.completion.n);
  s.minor_faults = static_cast<double>(group.usage.minor_faults) / n;
  s.preemptions = static_cast<double>(group.usage.involuntary_switches) / n;
  s.switches =
      static_cast<double>(group.usage.voluntary_switches + group.usage.involuntary_switches) / n;
  return s;
}

}  // namespace

double share_of_time(Operation operation) { return operation == Operation::ping_pong ? 0.5 : 1; }

PointSummary summarize(const CollConfig& config, const PointResult& result,
                       const Surroundings& around) {
  PointSummary summary{.no_speed = around.no_speed};
  std::vector<Distribution> completions;
  bool crowded = false;
  for (const GroupResult& group : result.groups) {
    crowded |= group.crowded;
    if (group.of(Series::operation).operations() == 0) continue;
    summary.groups.push_back(summarize_group(config, group, around, result));
    completions.push_back(summary.groups.back().completion);
  }
  summary.among = judge_groups(completions, crowded);
  if (summary.among.fault == Fault::slow_group) {
    Verdict& own = summary.groups[summary.among.who.front()].verdict;
    if (own.fault == Fault::none) own = summary.among;
  }
  return summary;
}

PointResult predict(const CollConfig& config, const Point& point, const Machine& machine) {
  PointResult result{.point = point};
  const auto groups = groups_of(config, point.group);
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    GroupResult group{.index = g, .ranks = groups[g]};
    const int n = static_cast<int>(group.ranks.size());
    group.call = call_of(point, n, config.root);
    group.ranks.resize(std::max(1, participants(point.operation, n)));
    result.groups.push_back(std::move(group));
  }
  const GroupSpread spread = spread_of(nodes_of(config, result), machine);
  for (GroupResult& group : result.groups) {
    const std::vector<int> nodes = config.mesh.nodes_of(group.ranks);
    double seconds = 0;
    if (const auto kind = kind_of(point.operation); kind && group.ranks.size() > 1) {
      seconds = group_seconds(*kind, point.algorithm, bytes_of(group.call), nodes, spread, machine);
    } else if (!kind) {
      // Rounds of messages to members 1, 2, 4, ... places on (Hensgen, Finkel and Manber, 1988).
      const Link& link = link_class(nodes) == LinkClass::intra ? machine.intra : machine.inter;
      const double n = std::max<double>(1, static_cast<double>(group.ranks.size()));
      seconds = std::ceil(std::log2(n)) * link.latency_us * 1e-6;
    }
    const double ns = std::round(1e9 * seconds / share_of_time(point.operation));
    Samples& samples = group.of(Series::operation);
    samples.start.assign(group.ranks.size(), {0});
    samples.end.assign(group.ranks.size(), {static_cast<std::int64_t>(ns)});
  }
  return result;
}

std::string to_text(const Verdict& verdict, const std::vector<int>& ranks) {
  const auto by = [&](const char* how) {
    return cat(" by ", format_duration(verdict.effect_ns), ' ', how);
  };
  switch (verdict.fault) {
    case Fault::none:
      return "";
    case Fault::late_rank:
      return cat("late rank ", ranks[verdict.who[0]], ": starts after the others", by("(median)"));
    case Fault::slow_rank:
      return cat("slow rank ", ranks[verdict.who[0]], ": takes longer", by("than the others"));
    case Fault::slow_link:
      return cat("slow link between ranks ", ranks[verdict.who[0]], " and ", ranks[verdict.who[1]],
                 ": they take longer", by("than the others"));
    case Fault::slow_group:
      return cat("slow group ", verdict.who[0], ": takes longer", by("than the others"));
  }
  return "";
}

const GroupSummary& slowest(const PointSummary& summary) {
  return *std::max_element(
      summary.groups.begin(), summary.groups.end(),
      [](const auto& a, const auto& b) { return a.completion.p50 < b.completion.p50; });
}

}  // namespace mb
