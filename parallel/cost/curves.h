// Measured times of collectives as curves of at most three straight segments.
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
  bool operator==(const CurveSegment&) const = default;
};
struct Curve {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 2;
  std::vector<CurveSegment> segments;
  int nodes = 1;
  bool operator==(const Curve&) const = default;
};
double seconds_at(const Curve& curve, double bytes);
// Throws Error naming `subject` for a curve without segments, or with an impossible one.
void check_curve(const Curve& curve, std::string_view subject);
struct CurveSet {
  std::string_view name;
  std::vector<Curve> curves;
};
const std::vector<CurveSet>& curve_sets();  // curves_table.cc, which says where they are from

const CurveSet& find_curves(std::string_view name);  // throws Error naming those that are known

// Of curves within a node: between measured numbers of ranks in proportion; beyond the largest, its
// latency by what the last ranks added to it, its bytes by what a ring carries. nullopt for kinds
// without a curve.
std::optional<double> curve_seconds(const std::vector<Curve>& curves, CollectiveKind kind,
                                    int ranks, std::int64_t bytes);
// Of a set by name; nullopt for "none" too.
std::optional<double> curve_seconds(std::string_view set, CollectiveKind kind, int ranks,
                                    std::int64_t bytes);

}  // namespace mb
