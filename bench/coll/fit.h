// A machine from measured collectives: latency and bandwidth of the links they went over.
#pragma once

#include <string>
#include <vector>

#include "bench/analysis/link_fit.h"
#include "bench/coll/text.h"
#include "parallel/cost/machine.h"

namespace mb {

struct MachineFit {
  Machine machine;  // `base` with the links that could be fitted
  LinkFit intra, inter;
};
// From groups within a node, and from those with one member on each of several nodes. A link takes
// as many bytes and messages in a row as collective_seconds counts, so that the machine predicts
// the times it is fitted to.
MachineFit fit_machine(const CollConfig& config, const std::vector<MeasuredPoint>& all,
                       Machine base);
// "intra: 1.2 us, 12 GB/s from 16 points, off by 8 % (median)", or why there is no fit.
std::string to_text(const MachineFit& fit);

}  // namespace mb
