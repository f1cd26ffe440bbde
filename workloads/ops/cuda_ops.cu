// Enqueues operations. Compiled by nvcc, and by the host's compiler for
// tests/support/cuda_emulation.
#include <type_traits>
#include <variant>

#include "workloads/ops/cuda_attention.h"
#include "workloads/ops/cuda_call.h"
#include "workloads/ops/cuda_embedding.h"
#include "workloads/ops/cuda_experts.h"
#include "workloads/ops/cuda_loss.h"
#include "workloads/ops/cuda_moves.h"
#include "workloads/ops/cuda_ops.h"
#include "workloads/ops/cuda_router.h"
#include "workloads/ops/cuda_rows.h"
#include "workloads/ops/cuda_tokens.h"

namespace mb::cuda {

template <class T, class C>
struct BiasRow {
  const T* bias;
  C* c;
  std::int64_t n;
  bool accumulate;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    if (accumulate) return add_to(team, bias, c + row * n, n);
    convert(team, bias, c + row * n, n);
  }
};

template <class T>
void run(const Matmul& op, const Call<T>& call) {
  const DType in_type = dtype_of<T>();
  Product product{shape_of(op), in_type, op.to_main ? main_dtype(in_type) : in_type};
  const void* bias = op.bias ? call.reads[2] : nullptr;
  if (op.bias &&
      (in_type == DType::fp64 || product.out != in_type)) {  // where there is no epilogue
    if (op.to_main) {
      rows(call, op.m,
           BiasRow<T, Main<T>>{in<T>(call, 2), out<Main<T>>(call, 0), op.n, op.accumulate});
    } else {
      rows(call, op.m, BiasRow<T, T>{in<T>(call, 2), out<T>(call, 0), op.n, op.accumulate});
    }
    product.bias = false;
    product.accumulate = true;
  }
  multiply(call, product, call.reads[0], call.reads[1], bias, call.writes[0]);
}

struct StreamOps::State {
  cudaStream_t stream;
  MatmulLibrary matmul;
  Scratch scratch;
  HostCounts counts;
  TokenLoader loader;
  std::unique_ptr<FusedAttention> fused;

  State(cudaStream_t on, const StreamOptions& options) : stream(on), matmul(options.tf32) {
    if (options.fused_attention) fused = std::make_unique<FusedAttention>(stream);
  }

  void run(const Op& op, const OpContext& context, const void* const* reads, void* const* writes,
           bool prepares) {
    scratch.begin();
    const auto with = [&]<class T>(T) {
      const Call<T> call{context, reads,  writes,      stream,  matmul,
                         scratch, counts, fused.get(), prepares};
      std::visit(
          [&](const auto& kind) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(kind)>, LoadBatch>) {
              loader.run(kind, call);
            } else {
              cuda::run(kind, call);
            }
          },
          op.kind);
    };
    switch (op.dtype) {
      case DType::fp32:
        return with(float{});
      case DType::fp64:
        return with(double{});
      case DType::bf16:
        return with(Bf16{});
      case DType::fp16:
        return with(Fp16{});
      default:
        throw Error(cat("cuda kernels have floating-point numbers, not ", name_of(op.dtype)));
    }
  }
};

StreamOps::StreamOps(cudaStream_t stream, const StreamOptions& options)
    : state_(std::make_unique<State>(stream, options)) {}
StreamOps::~StreamOps() = default;

void StreamOps::prepare(const Op& op) {
  static constexpr const void* kNoReads[16] = {};
  static constexpr void* kNoWrites[16] = {};
  state_->run(op, {}, kNoReads, kNoWrites, true);
  state_->scratch.make_room();
}

void StreamOps::run(const Op& op, const OpContext& context, std::span<const void* const> reads,
                    std::span<void* const> writes) {
  state_->run(op, context, reads.data(), writes.data(), false);
}

void StreamOps::rethrow() { state_->loader.rethrow(); }

}  // namespace mb::cuda
