// Causal attention by cuDNN's fused kernels, where it is there and has them. cudnn_attention.cc
// does it, no_cudnn.cc is what a build without cuDNN has: there it is never ready.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "workloads/base/dtype.h"

namespace mb::cuda {

// Rows as in HeadLayout; those of dq are q_row long, of dk and dv kv_row.
struct AttentionShape {
  DType type = DType::bf16;
  bool gradient = false;
  std::int64_t batch, heads, kv_heads, head_dim, sequence;
  std::int64_t q_row, kv_row, out_row;
  auto operator<=>(const AttentionShape&) const = default;
};

// What attention ran on in this process so far, a line each: "cuDNN 9.19.0", "tiles of products:
// fp32 has no fused kernel".
std::set<std::string> attention_backends();
void note_attention(const std::string& backend);

// One for each stream.
class FusedAttention {
 public:
  explicit FusedAttention(cudaStream_t stream);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  // Builds kernels and makes room for them; false, and noted why, where there are none.
  bool prepare(const AttentionShape& shape);
  // Whether prepare() has said so.
  bool ready(const AttentionShape& shape) const;

  // q, k, v -> out, lse.
  void forward(const AttentionShape& shape, const void* q, const void* k, const void* v, void* out,
               void* lse) const;
  // dout, q, k, v, out, lse -> dq, dk, dv.
  void gradient(const AttentionShape& shape, const void* dout, const void* q, const void* k,
                const void* v, const void* out, const void* lse, void* dq, void* dk,
                void* dv) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mb::cuda
