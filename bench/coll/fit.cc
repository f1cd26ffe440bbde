#include "bench/coll/fit.h"

#include <fmt/format.h>

#include "parallel/cost/collective_cost.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// The cost is linear in latency and in the inverse of bandwidth; this is how much of each.
LinkSample sample_of(const CollConfig& config, Algorithm algorithm, const GroupResult& group,
                     const GroupSummary& s) {
  const std::vector<int> nodes = config.mesh.nodes_of(group.ranks);
  const auto cost = [&](const Link& link) {
    return collective_seconds(*kind_of(group.call.operation), algorithm, s.bytes, nodes, link,
                              link);
  };
  const Link bytes_alone{.latency_us = 0, .gb_per_s = 1}, both{.latency_us = 1, .gb_per_s = 1};
  return {.bytes = 1e9 * cost(bytes_alone),
          .seconds = 1e-9 * s.completion.p50,
          .steps = 1e6 * (cost(both) - cost(bytes_alone))};
}

void take(const LinkFit& fit, Link& link) {
  if (!fit.latency_s) return;
  link.latency_us = 1e6 * *fit.latency_s;
  link.gb_per_s = 1e-9 * *fit.bytes_per_s;
}

std::string line_of(const char* name, const LinkFit& fit) {
  if (!fit.latency_s) return cat(name, ": not fitted, ", fit.reason, '\n');
  return fmt::format("{}: {} and {}, from {} points of {} sizes, off by {:.1f} % (median)\n", name,
                     format_duration(1e9 * *fit.latency_s), format_bandwidth(*fit.bytes_per_s),
                     fit.samples, fit.sizes, 100 * fit.error);
}

}  // namespace

MachineFit fit_machine(const CollConfig& config, const std::vector<MeasuredPoint>& all,
                       Machine base) {
  std::vector<LinkSample> intra, inter;
  for (const MeasuredPoint& m : all) {
    for (std::size_t g = 0; g < m.summary.groups.size(); ++g) {
      const GroupResult& group = m.result.groups[g];
      const GroupSummary& s = m.summary.groups[g];
      if (!kind_of(group.call.operation) || s.bytes == 0) continue;
      if (s.expected.link == LinkClass::intra)
        intra.push_back(sample_of(config, m.result.point.algorithm, group, s));
      if (s.expected.link == LinkClass::inter)
        inter.push_back(sample_of(config, m.result.point.algorithm, group, s));
    }
  }
  MachineFit fit{.machine = std::move(base), .intra = fit_link(intra), .inter = fit_link(inter)};
  fit.machine.name = "fitted";
  fit.machine.ranks_per_node = config.mesh.ranks_per_node();
  take(fit.intra, fit.machine.intra);
  take(fit.inter, fit.machine.inter);
  return fit;
}

std::string to_text(const MachineFit& fit) {
  return line_of("within a node", fit.intra) + line_of("between nodes", fit.inter);
}

}  // namespace mb
