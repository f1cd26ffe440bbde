// Causal attention as graphs that cuDNN has fused kernels for (Dao et al., FlashAttention, 2022):
// no score comes to memory.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "workloads/base/dtype.h"
#include "workloads/ops/cudnn_graph.h"
#include "workloads/ops/fused_attention.h"

namespace mb::cuda {

// A graph and its tensors in memory. Those of device memory in the order of the operands below,
// then two of workspace, of which the forward has none; then numbers of the host.
struct AttentionGraph {
  CudnnGraph graph;
  std::vector<CudnnGraph::Tensor> operands;   // q, k, v, out, lse; or dout, ... lse, dq, dk, dv
  std::vector<CudnnGraph::Tensor> workspace;  // of the gradient: sums of dq, and of dout out
  std::vector<std::int64_t> workspace_bytes;  // of each
  std::vector<CudnnGraph::Tensor> numbers;    // as attention_numbers()
};
AttentionGraph attention_graph(const CudnnApi& api, const AttentionShape& shape);

// What the scalars of a graph stand for, in their order: the scale of scores, what masked ones
// become, and one.
std::array<float, 3> attention_numbers(const AttentionShape& shape);

}  // namespace mb::cuda
