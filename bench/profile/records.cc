#include "bench/profile/records.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace mb {

std::uint64_t external_id(std::uint32_t rank, std::uint32_t instruction) {
  return std::uint64_t{rank} << 32 | instruction;
}

ActivityTimeline join(const ActivityRecords& records, Span window) {
  // Links first: a record and its link may lie in different buffers, in either order.
  std::unordered_map<std::uint32_t, std::optional<std::uint64_t>> links;
  for (const ExternalRecord& link : records.links) {
    const auto [it, added] = links.emplace(link.correlation, link.external);
    if (!added && it->second != link.external) it->second.reset();
  }
  ActivityTimeline out;
  TraceQuality& quality = out.quality;
  quality.dropped = records.dropped;
  for (std::size_t i = 0; i < records.work.size(); ++i) {
    const ActivityRecord& record = records.work[i];
    if (record.start_ns == 0 || record.end_ns == 0 || record.end_ns < record.start_ns) {
      ++quality.without_time;
      continue;
    }
    if (record.start_ns < window.start_ns || record.end_ns > window.end_ns) {
      ++quality.out_of_window;
      continue;
    }
    const auto link = links.find(record.correlation);
    if (link == links.end() || !link->second) {
      ++quality.uncorrelated;
      continue;
    }
    ++quality.placed;
    out.instructions[*link->second].work.push_back(i);
  }
  for (auto& [external, activity] : out.instructions) {
    activity.rank = static_cast<std::uint32_t>(external >> 32);
    activity.instruction = static_cast<std::uint32_t>(external);
    std::sort(activity.work.begin(), activity.work.end(), [&](std::size_t a, std::size_t b) {
      const ActivityRecord &x = records.work[a], &y = records.work[b];
      return std::tie(x.start_ns, x.end_ns, a) < std::tie(y.start_ns, y.end_ns, b);
    });
    std::vector<Span> spans;
    activity.extent.start_ns = records.work[activity.work.front()].start_ns;
    activity.extent.end_ns = activity.extent.start_ns;
    for (std::size_t i : activity.work) {
      spans.push_back({records.work[i].start_ns, records.work[i].end_ns});
      activity.extent.end_ns = std::max(activity.extent.end_ns, records.work[i].end_ns);
    }
    activity.busy = unite(std::move(spans));
  }
  return out;
}

HostTime host_time(const ActivityRecords& records, Span window) {
  HostTime time;
  std::vector<Span> waits, overheads;
  for (const HostRecord& record : records.host) {
    if (record.start_ns == 0 || record.end_ns == 0 || record.end_ns < record.start_ns) {
      ++time.without_time;
      continue;
    }
    const Span in{std::max(record.start_ns, window.start_ns),
                  std::min(record.end_ns, window.end_ns)};
    if (in.end_ns < in.start_ns) {
      ++time.out_of_window;
      continue;
    }
    switch (record.kind) {
      case HostActivity::wait:
        ++time.waits;
        waits.push_back(in);
        break;
      case HostActivity::stream_wait:
        ++time.stream_waits;
        break;
      case HostActivity::overhead:
        ++time.overheads;
        overheads.push_back(in);
        break;
    }
  }
  time.waiting_ns = length_ns(unite(std::move(waits)));
  time.overhead_ns = length_ns(unite(std::move(overheads)));
  for (const AllocationRecord& record : records.allocations) {
    if (record.at_ns == 0) {
      ++time.without_time;
    } else if (record.at_ns < window.start_ns || record.at_ns > window.end_ns) {
      ++time.out_of_window;
    } else {
      ++time.allocations;
      time.allocated_bytes += record.bytes;
    }
  }
  return time;
}

}  // namespace mb
