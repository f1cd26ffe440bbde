// The kernels of cpu_kernels.cc as tables, one for each instruction set it is compiled for.
#pragma once

#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "workloads/base/half.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/matmul.h"
#include "workloads/ops/op.h"

namespace mb {

// What a kernel gets beside its operation; reads and writes as op.h lists them.
template <class T>
struct KernelCall {
  const OpContext& context;
  const void* const* reads;
  void* const* writes;
  MatmulFunction<Main<T>> matmul;
  HalfMatmulFunction<T> half_matmul = nullptr;  // null: widen the operands and use `matmul`
};

template <class T, class Kind>
struct Kernel {
  void (*run)(const Kind& op, const KernelCall<T>& call);
};

// One kernel for each alternative of a variant; `table.Kernel<T, Kind>::run` is that of Kind.
template <class T, class Kinds>
struct KernelTable;
template <class T, class... Kinds>
struct KernelTable<T, std::variant<Kinds...>> : Kernel<T, Kinds>... {};

// a = b + 0.5 c or a = b, over n elements.
using StreamFunction = void (*)(float* a, const float* b, const float* c, std::int64_t n);

struct CpuKernels {
  std::string_view isa;
  KernelTable<float, OpKind> fp32;
  KernelTable<double, OpKind> fp64;
  KernelTable<Bf16, OpKind> bf16;
  KernelTable<Fp16, OpKind> fp16;
  MatmulFunction<float> matmul_fp32;  // the built-in one
  MatmulFunction<double> matmul_fp64;
  // Run `rounds` rounds of independent multiply-adds and return how many FLOPs that was.
  double (*multiply_add_fp32)(std::int64_t rounds);
  double (*multiply_add_fp64)(std::int64_t rounds);
  // By ordinary stores, and by ones that pass the caches by; see stream.h.
  StreamFunction triad[2], stream_copy[2];
};

extern const CpuKernels avx512_kernels, avx2_kernels, base_kernels;

// Those that this processor can run, best first.
std::vector<const CpuKernels*> supported_kernels();
// The choice of this process: the best, or that of the environment variable MB_ISA. Throws Error if
// MB_ISA names none or one that the processor lacks.
const CpuKernels& cpu_kernels();
const CpuKernels& find_kernels(std::string_view isa);

// oneDNN where it is there, else built-in; the environment variable MB_MATMUL ("onednn",
// "builtin") overrides. Throws Error for another value.
bool use_onednn();

// run_cpu_op with a choice of kernels and fp32 matmul.
void run_cpu_op_with(const CpuKernels& kernels, bool onednn, const Op& op, const OpContext& context,
                     std::span<const void* const> reads, std::span<void* const> writes);

}  // namespace mb
