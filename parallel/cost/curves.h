// Measured times of collectives within a node, as curves of at most three straight segments.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/comm/collective.h"

namespace mb {

// Up to `bytes`: latency + size / rate.
struct CurveSegment {
  double bytes = 0;
  double latency_us = 0;
  double gb_per_s = 0;
};
struct Curve {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 2;
  std::vector<CurveSegment> segments;
};
struct CurveSet {
  std::string_view name;
  std::vector<Curve> curves;
};
const std::vector<CurveSet>& curve_sets();  // curves_table.cc, which says where they are from

// Between measured numbers of ranks in proportion; beyond the largest, its time by the ratio of
// what a ring carries. nullopt for "none" and for kinds without a curve. Throws Error for a set
// that is not known.
std::optional<double> curve_seconds(std::string_view set, CollectiveKind kind, int ranks,
                                    std::int64_t bytes);

}  // namespace mb
