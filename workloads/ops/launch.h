// What a kernel must know beyond its operation: who runs it, at which step, and where tokens come
// from.
#pragma once

#include <cstdint>
#include <span>

#include "workloads/ops/op.h"

namespace mb {

// Tokens and next-token labels of micro-batch `micro_batch` of data rank `data_index` at a step;
// both arrays hold batch * sequence entries; a null one is not wanted. Must be callable from
// several threads.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
                    std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const = 0;
};

struct OpContext {
  std::int64_t step = 0;  // from 0
  int micro_batch = 0;
  int shard_index = 0;    // place in the tensor-parallel group
  int context_index = 0;  // place in the context-parallel group
  int data_index = 0;     // which share of the global batch: place among all data ranks
  // Place among the ranks that share a parameter and its gradient's sum, by which its optimizer
  // state is divided, and among those that share an expert's; and which replica of these groups.
  int owner_index = 0, expert_owner_index = 0, replica_index = 0;
  std::int64_t first_sample = 0;  // of the micro-batch, counted over the global batch
  std::uint64_t seed = 1;         // of dropout
  const BatchSource* batches = nullptr;
};

// Runs `op` on the calling thread; operands as op.h lists them. Safe from any number of threads at
// once. Scratch space is kept per thread and reused. Throws Error for a dtype that the CPU kernels
// do not have.
void run_cpu_op(const Op& op, const OpContext& context, std::span<const void* const> reads,
                std::span<void* const> writes);

// What matmuls run on, for reports: "oneDNN 2.6.3" or "built-in avx512"; "oneDNN 2.6.3 bf16"
// or, where 16-bit operands are widened first, "oneDNN 2.6.3 in fp32".
std::string matmul_backend(DType dtype);
// The instruction set that row kernels and the built-in matmul were dispatched to: "avx512", "avx2"
// or "base".
std::string cpu_isa();

}  // namespace mb
