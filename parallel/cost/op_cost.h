// What an operation costs a device: its kernels, and their time by roofline.
#pragma once

#include <vector>

#include "parallel/cost/kernel.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "workloads/ops/op.h"

namespace mb {

// In the order in which a stack launches them. Most operations are one kernel; those that stacks
// without fusion have more of are in eager_kernels.h.
std::vector<Kernel> kernels_of(const Op& op, const Stack& stack);

// launch + max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)) of a kernel; a
// matmul's FLOPs are those of its tiles (tiles.h).
double kernel_seconds(const Kernel& kernel, DType dtype, const Machine& machine,
                      const Stack& stack);
// Whether memory has the last word in most of its time.
bool is_memory_bound(const Op& op, const Machine& machine, const Stack& stack);
double op_seconds(const Op& op, const Machine& machine, const Stack& stack);

}  // namespace mb
