// Proves that the slots of a schedule are a step: complete, in a legal order, and without deadlock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace mb {

struct WrongSlot {
  int rank = 0;
  std::string what;  // the slot, the rule and what would do: "slot 3 'B1': ..."
};

// The first slot that is wrong. Each rank has to run every micro-batch of every chunk forward once
// and then either one B, or one I and later one W; and with sends that do not wait for their
// receiver, all ranks have to get to the end. `shape` gives ranks, chunks and micro-batches.
std::optional<WrongSlot> find_wrong_slot(const std::vector<std::vector<Slot>>& slots,
                                         Placement placement, const PipelineShape& shape);

// Throws Error naming that slot and its stage.
void check_slots(const std::vector<std::vector<Slot>>& slots, Placement placement,
                 const PipelineShape& shape);

}  // namespace mb
