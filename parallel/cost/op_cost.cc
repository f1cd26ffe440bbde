#include "parallel/cost/op_cost.h"

#include <algorithm>

#include "parallel/cost/eager_kernels.h"
#include "parallel/cost/tiles.h"

namespace mb {
namespace {

// A backward of fused attention computes the scores again: five products where its flops() counts
// four (Dao et al., 2022, section 3.1).
constexpr double kScoresAgain = 5.0 / 4;

}  // namespace

std::vector<Kernel> kernels_of(const Op& op, const Stack& stack) {
  const double work = flops(op), bytes = bytes_moved(op);
  if (!stack.fused_attention && is_attention(op)) return unfused_attention(op);
  if (stack.eager) {
    if (std::vector<Kernel> several = eager_kernels(op); !several.empty()) return several;
  }
  if (std::holds_alternative<Attention>(op.kind) || std::holds_alternative<RingAttention>(op.kind))
    return {{Kernel::Unit::attention, work, bytes}};
  if (std::holds_alternative<AttentionGradient>(op.kind) ||
      std::holds_alternative<RingAttentionGradient>(op.kind))
    return {{Kernel::Unit::attention, kScoresAgain * work, bytes}};
  if (const auto* matmul = std::get_if<Matmul>(&op.kind)) {
    std::vector<Kernel> kernels = {{Kernel::Unit::matmul, work, bytes, product_of(*matmul)}};
    // What came out of the operation before is rounded to fp8, once as it lies and once transposed,
    // for the gradient of the weight, which finds both operands rounded. Weights are once a step.
    if (stack.fp8_matmul && size_of(op.dtype) == 2 && !matmul->to_main)
      kernels.insert(kernels.begin(),
                     {Kernel::Unit::memory, 0, 4.0 * static_cast<double>(matmul->m * matmul->k)});
    return kernels;
  }
  const bool matmul = std::holds_alternative<ExpertMatmul>(op.kind);
  return {{matmul ? Kernel::Unit::matmul : Kernel::Unit::memory, work, bytes}};
}

double kernel_seconds(const Kernel& kernel, DType dtype, const Machine& machine,
                      const Stack& stack) {
  const bool attention = kernel.unit == Kernel::Unit::attention;
  const bool fp8 = kernel.unit == Kernel::Unit::matmul && stack.fp8_matmul && size_of(dtype) == 2;
  const double peak = fp8 ? machine.fp8_tflops : machine.peak_tflops(dtype),
               share = attention ? machine.attention_efficiency * stack.attention_share
                                 : machine.matmul_efficiency;
  const double flops_per_s = peak * 1e12 * share * stack.compute_share,
               bytes_per_s =
                   machine.memory_gb_per_s * 1e9 * machine.memory_efficiency * stack.memory_share;
  const double launch = machine.launch_us * 1e-6, memory = kernel.bytes / bytes_per_s;
  if (kernel.flops <= 0) return launch + memory;
  if (kernel.product.k <= 0) return launch + std::max(kernel.flops / flops_per_s, memory);
  const TiledWork tiled = tiled_work(kernel.product, machine, flops_per_s, bytes_per_s);
  return launch + std::max(tiled.flops / flops_per_s, memory) + tiled.bytes / bytes_per_s;
}

bool is_memory_bound(const Op& op, const Machine& machine, const Stack& stack) {
  Machine free = machine;  // to compute
  free.fp32_tflops = free.fp64_tflops = free.bf16_tflops = free.fp8_tflops = 1e9;
  return op_seconds(op, free, stack) > 0.5 * op_seconds(op, machine, stack);
}

double op_seconds(const Op& op, const Machine& machine, const Stack& stack) {
  double seconds = 0;
  for (const Kernel& kernel : kernels_of(op, stack))
    seconds += kernel_seconds(kernel, op.dtype, machine, stack);
  return seconds;
}

}  // namespace mb
