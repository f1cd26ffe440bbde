#include "bench/fit/coll_times.h"

namespace mb {

std::vector<CollectiveTime> collective_times(const CollConfig& config,
                                             const std::vector<MeasuredPoint>& all) {
  std::vector<CollectiveTime> times;
  for (const MeasuredPoint& m : all) {
    const Point& point = m.result.point;
    const auto kind = kind_of(point.operation);
    const bool plain = point.algorithm == Algorithm::own || point.algorithm == Algorithm::native;
    if (!kind || !plain || point.beside || point.overlap != ComputeKind::none) continue;
    std::vector<std::vector<int>> nodes;
    for (const GroupResult& group : m.result.groups)
      nodes.push_back(config.mesh.nodes_of(group.ranks));
    const GroupSpread spread = spread_of(nodes, Machine{});
    for (const GroupSummary& group : m.summary.groups) {
      if (spread.ranks > 1 && group.bytes > 0 && group.completion.p50 > 0)
        times.push_back({*kind, spread, static_cast<double>(group.bytes),
                         1e-9 * group.completion.p50, "this run"});
    }
  }
  return times;
}

}  // namespace mb
