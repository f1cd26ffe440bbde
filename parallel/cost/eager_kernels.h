// The kernels of stacks that run a step by PyTorch's own, one after the other: Megatron-LM of 2021
// and 2022 above all, whose fused ones are softmax, gelu with bias, and bias, dropout and residual.
#pragma once

#include <vector>

#include "parallel/cost/kernel.h"
#include "workloads/ops/op.h"

namespace mb {

bool is_attention(const Op& op);  // over whole sequences, forward or backward
// As two batched matmuls with softmax and dropout over scores in memory between them.
std::vector<Kernel> unfused_attention(const Op& op);

// What an operation other than attention is to autograd; none: one kernel, as everywhere.
std::vector<Kernel> eager_kernels(const Op& op);

}  // namespace mb
