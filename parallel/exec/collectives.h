// Carries out a Collective of a Plan over a Comm, as plan.h lays out its operands.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/comm/comm.h"
#include "parallel/plan/plan.h"
#include "workloads/base/dtype.h"

namespace mb {

// A tensor where it lies, in memory that this thread may touch.
struct Operand {
  void* data = nullptr;
  std::int64_t elements = 0;
  DType type = DType::fp32;
};

// The `index`-th of `ways` equal slices.
Operand slice_of(const Operand& whole, int ways, int index);

// Throws Error for operands that the group's size does not divide, and where an all_to_all_v would
// receive more than there is room for.
void run_collective(Comm& comm, const Collective& collective, std::span<const Operand> reads,
                    std::span<const Operand> writes);

}  // namespace mb
