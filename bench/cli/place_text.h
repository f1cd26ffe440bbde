// What `meshbench place` found, as text and as rows.
#pragma once

#include <string>
#include <vector>

#include "bench/analysis/placement.h"
#include "bench/cli/case.h"
#include "bench/report/json.h"

namespace mb {

// One class of orders of a case.
struct PlacedOrder {
  std::vector<std::string> orders;
  Case c;  // in the first of them
  std::vector<AxisPlacement> axes;
  double simulated_s = 0;
  std::vector<double> measured_s;  // steps; empty if not run

  double intra_bytes() const;
  double inter_bytes() const;
  const AxisPlacement* axis(const std::string& name) const;  // nullptr if there is none
};

// `placed` from the fastest in virtual time on `machine` to the slowest.
std::string place_text(const Case& c, const Machine& machine,
                       const std::vector<PlacedOrder>& placed);
// A row for each.
std::vector<Json> place_rows(const Machine& machine, const std::vector<PlacedOrder>& placed);

}  // namespace mb
