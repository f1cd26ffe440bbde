// Runs operations on the calling CPU thread.
#include <type_traits>

#include "workloads/base/error.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

template <class T>
void dispatch(const KernelTable<T, OpKind>& table, const Op& op, const KernelCall<T>& call) {
  std::visit(
      [&](const auto& kind) {
        using Kind = std::remove_cvref_t<decltype(kind)>;
        static_cast<const Kernel<T, Kind>&>(table).run(kind, call);
      },
      op.kind);
}

}  // namespace

void run_cpu_op_with(const CpuKernels& kernels, bool onednn, const Op& op, const OpContext& context,
                     std::span<const void* const> reads, std::span<void* const> writes) {
  const auto matmul = onednn ? onednn_matmul : kernels.matmul_fp32;
  const void* const* in = reads.data();
  void* const* out = writes.data();
  switch (op.dtype) {
    case DType::fp32:
      return dispatch<float>(kernels.fp32, op, {context, in, out, matmul});
    case DType::fp64:
      return dispatch<double>(kernels.fp64, op, {context, in, out, kernels.matmul_fp64});
    case DType::bf16:
      return dispatch<Bf16>(
          kernels.bf16, op,
          {context, in, out, matmul, onednn && onednn_has_bf16() ? onednn_matmul_bf16 : nullptr});
    case DType::fp16:
      return dispatch<Fp16>(kernels.fp16, op, {context, in, out, matmul});
    default:
      throw Error(cat("cpu kernels have floating-point numbers, not ", name_of(op.dtype)));
  }
}

void run_cpu_op(const Op& op, const OpContext& context, std::span<const void* const> reads,
                std::span<void* const> writes) {
  run_cpu_op_with(cpu_kernels(), use_onednn(), op, context, reads, writes);
}

std::string matmul_backend(DType dtype) {
  if (dtype == DType::bf16 && use_onednn() && onednn_has_bf16()) return onednn_version() + " bf16";
  if (dtype != main_dtype(dtype)) return matmul_backend(main_dtype(dtype)) + " in fp32";
  if (dtype == DType::fp32 && use_onednn()) return onednn_version();
  return cat("built-in ", cpu_kernels().isa);
}

std::string cpu_isa() { return std::string(cpu_kernels().isa); }

}  // namespace mb
