// Live bytes of a rank along its list, by memory class: what the Plan says peak memory must be.
#pragma once

#include <array>
#include <cstdint>

#include "parallel/plan/plan.h"

namespace mb {

using BytesByClass = std::array<std::int64_t, kMemoryClasses>;

struct MemoryPeak {
  std::int64_t total_bytes = 0;  // largest sum of live bytes
  InstructionId at = kNone;      // the first instruction where it is reached
  BytesByClass at_total_peak{};  // what was live then: adds up to total_bytes
  BytesByClass class_peak{};     // each class's own largest: does not add up
  bool operator==(const MemoryPeak&) const = default;
};

// Persistent tensors live throughout; a tensor lives from its `first` to its `last` instruction,
// both included. Views count with their base.
MemoryPeak memory_peak(const Program& program);

}  // namespace mb
