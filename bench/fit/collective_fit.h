// What measured collectives say of a machine: curves by operation, ranks and nodes, and the links
// and NICs that everything else goes by.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/analysis/link_fit.h"
#include "bench/fit/constants.h"
#include "bench/fit/curve_fit.h"
#include "bench/fit/rows.h"
#include "parallel/cost/machine.h"

namespace mb {

struct FittedCurve {
  Curve curve;
  int rows = 0;
  double error = 0, held_out = 0, held_out_worst = 0;
  std::string source;
};

struct CollectivesFit {
  std::vector<FittedCurve> curves;
  LinkFit link;                     // within a node
  double link_held_out = 0;         // mean error of samples by a link fitted to the others
  std::optional<ConstantsFit> nic;  // latency in us and rate in GB/s, between nodes
  std::string link_source, nic_source;
  int nic_rows = 0;
  std::vector<std::string> refused;  // what was not fitted, and how many rows it takes
};

// Puts what it finds into `machine`. Curves are of groups that share no NICs; kinds that were not
// measured keep the curves of the set that the machine had. A link takes as many bytes and messages
// in a row as collective_seconds counts, and NICs are those under which group_seconds meets the
// times, so that the machine predicts what it is fitted to.
CollectivesFit fit_collectives(std::span<const CollectiveTime> times, Machine& machine);

// "3 files: a.log, b.log, c.log" of rows with a `source`.
template <class Rows>
std::string sources_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) {
    const std::string name = row.source.substr(row.source.find_last_of('/') + 1);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 4; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 4) text += " and " + std::to_string(names.size() - 4) + " more";
  return text;
}

}  // namespace mb
