#include "parallel/cost/curves.h"

#include <algorithm>
#include <cmath>

#include "workloads/base/suggest.h"

namespace mb {

double seconds_at(const Curve& curve, double bytes) {
  for (const CurveSegment& s : curve.segments) {
    if (bytes <= s.bytes || &s == &curve.segments.back())
      return s.latency_us * 1e-6 + bytes / (s.gb_per_s * 1e9);
  }
  return 0;
}

void check_curve(const Curve& curve, std::string_view subject) {
  const std::string who = cat(subject, ": ", name_of(curve.kind), " over ", curve.ranks,
                              " ranks on ", curve.nodes, " nodes: ");
  require(curve.ranks >= 2 && curve.nodes >= 1 && curve.nodes <= curve.ranks, who,
          "give at least 2 ranks, and 1 to so many nodes");
  require(!curve.segments.empty(), who, "no segments; give at least one");
  double before = 0;
  for (const CurveSegment& s : curve.segments) {
    require(s.bytes > before, who, "segments have to end at growing sizes, not ", s.bytes,
            " bytes after ", before);
    require(s.latency_us >= 0 && std::isfinite(s.latency_us), who, "a latency of ", s.latency_us,
            " us; give one of at least 0");
    require(s.gb_per_s > 0 && std::isfinite(s.gb_per_s), who, "a rate of ", s.gb_per_s,
            " GB/s; give one above 0");
    before = s.bytes;
  }
}

// Each rank more adds the latency that the last ones added, and the rest grows as what a ring
// carries.
static double seconds_beyond(const Curve* fewer, const Curve& most, int ranks, double bytes) {
  const double latency = seconds_at(most, 0);
  const double more =
      fewer ? std::max(0.0, latency - seconds_at(*fewer, 0)) / (most.ranks - fewer->ranks) : 0;
  return latency + more * (ranks - most.ranks) +
         (seconds_at(most, bytes) - latency) * busbw_factor(most.kind, ranks) /
             busbw_factor(most.kind, most.ranks);
}

const CurveSet& find_curves(std::string_view name) {
  return find_named(curve_sets(), name, cat("machine.curves=", name),
                    [](const CurveSet& s) { return s.name; });
}

std::optional<double> curve_seconds(const std::vector<Curve>& curves, CollectiveKind kind,
                                    int ranks, std::int64_t bytes) {
  if (kind == CollectiveKind::all_to_all_v) kind = CollectiveKind::all_to_all;
  const Curve *fewer = nullptr, *below = nullptr, *above = nullptr;  // in order of ranks
  for (const Curve& curve : curves) {
    if (curve.kind != kind || curve.nodes != 1) continue;
    if (curve.ranks <= ranks) fewer = below, below = &curve;
    if (curve.ranks >= ranks && !above) above = &curve;
  }
  const auto size = static_cast<double>(bytes);
  if (below == above) return below ? std::optional(seconds_at(*below, size)) : std::nullopt;
  if (!below) return seconds_at(*above, size);
  if (!above) return seconds_beyond(fewer, *below, ranks, size);
  const double share = 1.0 * (ranks - below->ranks) / (above->ranks - below->ranks);
  return seconds_at(*below, size) * (1 - share) + seconds_at(*above, size) * share;
}

std::optional<double> curve_seconds(std::string_view set, CollectiveKind kind, int ranks,
                                    std::int64_t bytes) {
  if (set == "none") return std::nullopt;
  return curve_seconds(find_curves(set).curves, kind, ranks, bytes);
}

}  // namespace mb
