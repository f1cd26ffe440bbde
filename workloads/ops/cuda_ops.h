// Operations on a CUDA stream: row kernels from the sources that CPUs use, products by cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "workloads/ops/launch.h"

namespace mb::cuda {

struct StreamOptions {
  bool tf32 = false;            // products of fp32 may round operands to ten bits of mantissa
  bool fused_attention = true;  // by cuDNN where it has kernels
};

// What the operations of one stream of a device need: a library's handle, workspace, scratch.
class StreamOps {
 public:
  StreamOps(cudaStream_t stream, const StreamOptions& options);
  ~StreamOps();

  // Room for `op`, so that run() allocates no device memory.
  void prepare(const Op& op);
  // Enqueues `op`. Operands, in device memory, as op.h lists them. An ExpertMatmul with counts
  // waits for the stream, to read them.
  void run(const Op& op, const OpContext& context, std::span<const void* const> reads,
           std::span<void* const> writes);

  // Throws what the loading of tokens has thrown, once the stream has done what was enqueued.
  void rethrow();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace mb::cuda
