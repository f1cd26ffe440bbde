#include "parallel/cost/curves.h"

#include "workloads/base/suggest.h"

namespace mb {
namespace {

double at(const Curve& curve, double bytes) {
  for (const CurveSegment& s : curve.segments) {
    if (bytes <= s.bytes || &s == &curve.segments.back())
      return s.latency_us * 1e-6 + bytes / (s.gb_per_s * 1e9);
  }
  return 0;
}

}  // namespace

std::optional<double> curve_seconds(std::string_view set, CollectiveKind kind, int ranks,
                                    std::int64_t bytes) {
  if (set == "none") return std::nullopt;
  const CurveSet& known = find_named(curve_sets(), set, cat("machine.curves=", set),
                                     [](const CurveSet& s) { return s.name; });
  if (kind == CollectiveKind::all_to_all_v) kind = CollectiveKind::all_to_all;
  const Curve *below = nullptr, *above = nullptr;  // curves of a kind stand in order of ranks
  for (const Curve& curve : known.curves) {
    if (curve.kind != kind) continue;
    if (curve.ranks <= ranks) below = &curve;
    if (curve.ranks >= ranks && !above) above = &curve;
  }
  const auto size = static_cast<double>(bytes);
  if (below == above) return below ? std::optional(at(*below, size)) : std::nullopt;
  if (!below) return at(*above, size);
  if (!above)
    return at(*below, size) * busbw_factor(kind, ranks) / busbw_factor(kind, below->ranks);
  const double share = 1.0 * (ranks - below->ranks) / (above->ranks - below->ranks);
  return at(*below, size) * (1 - share) + at(*above, size) * share;
}

}  // namespace mb
