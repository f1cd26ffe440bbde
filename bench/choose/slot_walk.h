// A pipeline at the level of slots: when each rank is done, and how many micro-batches it keeps.
#pragma once

#include <vector>

#include "bench/choose/block_form.h"
#include "parallel/plan/plan.h"

namespace mb {

// What a rank's chunks take, and when it may begin them.
struct RankSlots {
  std::vector<PassSeconds> chunks;
  // Of the first micro-batch: no forward of a chunk ends before (parameters are on their way).
  std::vector<double> first_forward_s;
};

// When each rank has ended its last slot, in seconds. Slots wait for those of their neighbours,
// whose results take their hop to come, beside computation unless `hop_holds`.
std::vector<double> slot_ends(const std::vector<std::vector<Slot>>& slots, Placement placement,
                              const std::vector<RankSlots>& ranks, const MeshLinks::Hops& hops,
                              bool hop_holds);

// Chunks of micro-batches that a rank keeps whole, and those of which a half waits for its weight
// gradient, at once.
struct InFlight {
  int whole = 0, pending = 0;
};
// All that no other of them exceeds in both.
std::vector<InFlight> most_in_flight(const std::vector<Slot>& slots);

}  // namespace mb
