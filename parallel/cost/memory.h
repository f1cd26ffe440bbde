// What a device holds during a step: the Plan's tensors, what a software stack keeps beside them,
// and what allocator, libraries and driver take. Bytes.
#pragma once

#include <cstdint>

#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/plan/plan.h"

namespace mb {

struct StepMemory {          // of the rank that has most
  std::int64_t planned = 0;  // live tensors of the Plan at their peak
  std::int64_t stack = 0;  // more at the peak under the stack; below 0 where it holds gradients in
                           // fewer bytes
  std::int64_t rounding = 0;       // of the caching allocator: blocks of 512 B, segments of 2 MiB
  std::int64_t fragmentation = 0;  // what it holds in pieces that nothing fits into, at most
  std::int64_t library = 0, context = 0;
  std::int64_t allocated() const { return planned + stack + rounding; }
  std::int64_t reserved() const { return allocated() + fragmentation / 3; }  // as one expects
  std::int64_t device() const { return reserved() + library + context; }     // as one expects
  // What is there for sure if the device has so much.
  std::int64_t total() const { return allocated() + fragmentation + library + context; }
};

StepMemory memory_of(const Plan& plan, const Machine& machine, const Stack& stack);

// Part of the total besides tensors, for closed forms that know those: see StepMemory.
std::int64_t fragmentation_of(std::int64_t allocated, const Stack& stack);
std::int64_t library_bytes(const Mesh& mesh, const Machine& machine);

}  // namespace mb
