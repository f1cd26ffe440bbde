// Traced steps: how the host launches, what the device does between kernels, how much they differ,
// and of this program's own traces the time of every operation.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "bench/analysis/stats.h"
#include "bench/fit/input.h"
#include "bench/fit/trace_events.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Beyond this, a host or a device was waiting for something else than the next launch.
constexpr double kLongestNs = 200e3;
constexpr std::size_t kLeast = 50;  // launches or gaps that a median is taken of
constexpr std::size_t kOften = 5;   // repetitions of a kernel that a spread is taken of

using Events = std::vector<const TraceEvent*>;
using Lane = std::pair<std::int64_t, std::int64_t>;

bool is_kernel(const TraceEvent& e) { return e.category == "kernel" || e.category == "Kernel"; }
bool is_launch(const TraceEvent& e) {
  return (e.category == "cuda_runtime" || e.category == "cuda_driver" || e.category == "Runtime") &&
         (e.name.find("LaunchKernel") != std::string::npos);
}
bool communicates(const TraceEvent& e) { return e.name.find("nccl") != std::string::npos; }

std::map<Lane, Events> by_lane(const std::vector<TraceEvent>& events, auto&& wanted, auto&& lane) {
  std::map<Lane, Events> lanes;
  for (const TraceEvent& e : events)
    if (wanted(e)) lanes[lane(e)].push_back(&e);
  for (auto& [key, list] : lanes)
    std::stable_sort(list.begin(), list.end(), [](const TraceEvent* a, const TraceEvent* b) {
      return a->start_ns < b->start_ns;
    });
  return lanes;
}

// From one launch to the next of a host thread that does nothing but launch.
std::vector<double> launch_intervals(const std::vector<TraceEvent>& events) {
  std::vector<double> intervals;
  for (const auto& [thread, launches] :
       by_lane(events, is_launch, [](const TraceEvent& e) { return Lane(e.process, e.thread); })) {
    for (std::size_t i = 1; i < launches.size(); ++i) {
      const auto ns = static_cast<double>(launches[i]->start_ns - launches[i - 1]->start_ns);
      if (ns < kLongestNs) intervals.push_back(ns);
    }
  }
  return intervals;
}

// Between kernels of a stream of which the second had been launched before the first ended.
std::vector<double> device_gaps(const std::vector<TraceEvent>& events) {
  std::map<std::int64_t, std::int64_t> launched;  // by correlation
  for (const TraceEvent& e : events)
    if (is_launch(e)) launched[e.correlation] = e.start_ns + e.duration_ns;
  std::vector<double> gaps;
  for (const auto& [stream, kernels] :
       by_lane(events, is_kernel, [](const TraceEvent& e) { return Lane(e.process, e.stream); })) {
    for (std::size_t i = 1; i < kernels.size(); ++i) {
      const std::int64_t end = kernels[i - 1]->start_ns + kernels[i - 1]->duration_ns;
      const auto launch = launched.find(kernels[i]->correlation);
      if (launch == launched.end() || launch->second >= end) continue;
      const auto gap = static_cast<double>(kernels[i]->start_ns - end);
      if (gap >= 0 && gap < kLongestNs) gaps.push_back(gap);
    }
  }
  return gaps;
}

// Spread of log(duration) about the median of each name and shape, as the median tells it.
std::vector<double> deviations(const std::map<std::string, std::vector<double>>& durations) {
  std::vector<double> all;
  for (const auto& [name, list] : durations) {
    if (list.size() < kOften) continue;
    const double middle = median(list);
    for (const double ns : list) all.push_back(std::abs(std::log(ns / middle)));
  }
  return all;
}

void add_jitter(const std::map<std::string, std::vector<double>>& durations, TraceFacts& facts) {
  const std::vector<double> all = deviations(durations);
  facts.repeated = static_cast<int>(all.size());
  if (all.size() >= kLeast) facts.jitter = 1.4826 * median(all);
}

void read_profile(const std::vector<TraceEvent>& events, TraceFacts& facts) {
  const std::vector<double> intervals = launch_intervals(events), gaps = device_gaps(events);
  facts.launches = static_cast<int>(intervals.size());
  facts.gaps = static_cast<int>(gaps.size());
  if (intervals.size() >= kLeast) facts.launch_us = 1e-3 * median(intervals);
  if (gaps.size() >= kLeast) facts.gap_us = 1e-3 * median(gaps);
  std::map<std::string, std::vector<double>> durations;
  for (const TraceEvent& e : events) {
    if (!is_kernel(e) || communicates(e) || e.duration_ns <= 0) continue;
    ++facts.kernels;
    durations[e.name + e.shape].push_back(static_cast<double>(e.duration_ns));
  }
  add_jitter(durations, facts);
}

// From the end of what was waited for on another stream, where that came last, to the start.
std::vector<double> handoffs(const std::vector<TraceEvent>& events) {
  using Instruction = std::pair<std::int64_t, std::int64_t>;  // and its process
  std::map<Instruction, std::int64_t> ends;
  for (const TraceEvent& e : events)
    if (e.instruction >= 0) ends[{e.process, e.instruction}] = e.start_ns + e.duration_ns;
  const auto known = [](const TraceEvent& e) { return e.instruction >= 0; };
  std::vector<double> all;
  for (const auto& [stream, list] :
       by_lane(events, known, [](const TraceEvent& e) { return Lane(e.process, e.thread); })) {
    std::int64_t before = 0;  // when the one before it on its stream ended
    for (const TraceEvent* e : list) {
      std::int64_t last = 0;
      for (const std::int64_t id : e->after) {
        const auto end = ends.find({e->process, id});
        if (end != ends.end()) last = std::max(last, end->second);
      }
      const auto passed = static_cast<double>(e->start_ns - last);
      if (last > before && passed >= 0 && passed < kLongestNs) all.push_back(passed);
      before = e->start_ns + e->duration_ns;
    }
  }
  return all;
}

// What instructions alike take in the mean, since a step has the sum of all; leaves out those that
// something held up for longer than they take.
double central_mean(const std::vector<double>& list) {
  const double most = 3 * median(list);
  double sum = 0;
  int count = 0;
  for (const double ns : list)
    if (ns <= most) sum += ns, ++count;
  return sum / count;
}

// Instructions that compute, of every rank: their times by operation.
void read_own(const std::vector<TraceEvent>& events, TraceFacts& facts, FitRows& rows) {
  const auto computes = [](const TraceEvent& e) {
    return e.category == "compute" && e.instruction >= 0 && !e.action.empty();
  };
  std::vector<double> gaps;
  std::map<std::string, std::vector<double>> durations;
  for (const auto& [rank, list] :
       by_lane(events, computes, [](const TraceEvent& e) { return Lane(e.process, e.thread); })) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i]->duration_ns > 0)
        durations[list[i]->action].push_back(static_cast<double>(list[i]->duration_ns));
      if (i == 0) continue;
      const auto gap =
          static_cast<double>(list[i]->start_ns - list[i - 1]->start_ns - list[i - 1]->duration_ns);
      if (gap >= 0 && gap < kLongestNs) gaps.push_back(gap);
    }
  }
  const double gap_ns = gaps.size() >= kLeast ? central_mean(gaps) : 0;
  facts.gaps = static_cast<int>(gaps.size());
  if (gap_ns > 0) facts.gap_us = 1e-3 * gap_ns;
  // All of them count: the mean.
  const std::vector<double> passed = handoffs(events);
  facts.handoffs = static_cast<int>(passed.size());
  if (!passed.empty()) facts.handoff_us = 1e-3 * mean(passed);
  add_jitter(durations, facts);
  for (const auto& [action, list] : durations) {
    facts.kernels += static_cast<int>(list.size());
    rows.operations.push_back({{action, 1e-3 * central_mean(list)}, facts.source});
  }
}

// The kind of a collective or, of a message, where it is received: "all_reduce sum tp", "recv from
// stage 1".
std::optional<CollectiveKind> kind_of(const TraceEvent& e) {
  const std::string_view name = std::string_view(e.action).substr(0, e.action.find(' '));
  if (name == "recv") return CollectiveKind::shift;
  for (int k = 0; k < kCollectiveKinds; ++k)
    if (name_of(static_cast<CollectiveKind>(k)) == name) return static_cast<CollectiveKind>(k);
  return std::nullopt;
}

// What collectives and messages take on every rank once all have come, by kind, ranks and size.
void read_comm(const std::vector<TraceEvent>& events, FitRows& rows, const std::string& source) {
  using Key = std::tuple<CollectiveKind, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, std::vector<double>> transfers;
  for (const TraceEvent& e : events) {
    if (e.instruction < 0 || e.ranks < 2 || e.bytes <= 0 || e.transfer_ns <= 0) continue;
    if (const auto kind = kind_of(e))
      transfers[{*kind, e.ranks, e.nodes, e.groups_on_a_node, e.bytes}].push_back(
          static_cast<double>(e.transfer_ns));
  }
  for (const auto& [key, list] : transfers) {
    const auto [kind, ranks, nodes, groups, bytes] = key;
    rows.comm.push_back({{.kind = kind,
                          .ranks = static_cast<int>(ranks),
                          .nodes = static_cast<int>(nodes),
                          .groups_on_a_node = static_cast<int>(groups),
                          .bytes = bytes,
                          .us = 1e-3 * central_mean(list)},
                         source});
  }
}

}  // namespace

void read_trace(std::string_view text, const std::string& path, FitRows& rows) {
  const std::vector<TraceEvent> events = trace_events(text, path);
  TraceFacts facts{.source = path};
  const bool own = std::any_of(events.begin(), events.end(),
                               [](const TraceEvent& e) { return e.instruction >= 0; });
  facts.own = own;
  if (own) {
    read_own(events, facts, rows);
    read_comm(events, rows, path);
  } else {
    read_profile(events, facts);
  }
  require(facts.kernels > 0 || facts.launches > 0, path,
          ": a trace without a kernel or a launch; was the GPU profiled (ProfilerActivity.CUDA)?");
  rows.traces.push_back(std::move(facts));
}

}  // namespace mb
