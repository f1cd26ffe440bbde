// Live bytes of a rank along its list, by memory class: what the Plan says peak memory must be.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/plan/plan.h"

namespace mb {

using BytesByClass = std::array<std::int64_t, kMemoryClasses>;

struct MemoryPeak {
  std::int64_t total_bytes = 0;  // largest sum of live bytes
  InstructionId at = kNone;      // the first instruction where it is reached
  BytesByClass at_total_peak{};  // what was live then: adds up to total_bytes
  BytesByClass class_peak{};     // each class's own largest: does not add up
  std::int64_t host_bytes = 0;   // largest sum in the second memory space, which no class counts
  bool operator==(const MemoryPeak&) const = default;
};

// Persistent tensors live throughout; a tensor lives from its `first` to its `last` instruction,
// both included. Views count with their base.
MemoryPeak memory_peak(const Program& program);

// Tensors by the instruction where they come to life, and by the one after which they are gone.
// Without views, persistent tensors and tensors that nothing writes.
class Lifetimes {
 public:
  explicit Lifetimes(const Program& program);
  std::span<const TensorId> born_at(InstructionId id) const { return born_.at(id); }
  std::span<const TensorId> dead_after(InstructionId id) const { return dead_.at(id); }

 private:
  // Group i is [begin[i], begin[i + 1]) of `tensors`.
  struct Groups {
    std::vector<std::uint32_t> begin;
    std::vector<TensorId> tensors;
    Groups(const Program& program, InstructionId Tensor::*key);
    std::span<const TensorId> at(InstructionId i) const {
      return {tensors.data() + begin[i], begin[i + 1] - begin[i]};
    }
  };
  Groups born_, dead_;
};

}  // namespace mb
