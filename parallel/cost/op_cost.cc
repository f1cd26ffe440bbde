#include "parallel/cost/op_cost.h"

#include <algorithm>

namespace mb {
namespace {

// A backward of fused attention computes the scores again: five products where its flops() counts
// four (Dao et al., 2022, section 3.1).
constexpr double kScoresAgain = 5.0 / 4;

// Sizes of attention over whole sequences, forward or backward.
struct Scores {
  double rows, head_dim, keys;  // batch * heads * sequence, ..., sequence
  double heads_of_kv;           // of keys and values, as a share of the queries'
  double size;                  // of an element
  double matrix() const { return rows * keys * size; }
  double vectors() const { return rows * head_dim * size; }
};

Scores scores_of(const auto& op, DType dtype) {
  const auto of = [](auto n) { return static_cast<double>(n); };
  return {.rows = of(op.batch) * of(op.heads) * of(op.sequence),
          .head_dim = of(op.head_dim),
          .keys = of(op.sequence),
          .heads_of_kv = of(op.kv_heads) / of(op.heads),
          .size = of(size_of(dtype))};
}

Kernel product_of(const Scores& s) {  // scores, or what they weigh, and the like of a gradient
  return {Kernel::Unit::matmul, 2 * s.rows * s.keys * s.head_dim,
          s.matrix() + s.vectors() * (1 + s.heads_of_kv)};
}
Kernel pass_over(double bytes) { return {Kernel::Unit::memory, 0, bytes}; }

// Softmax with scale and mask. Megatron-LM's kernel takes four rows of batch * heads at a time;
// where they do not divide, PyTorch's own operations run, in fp32: cast, scale, mask, softmax,
// cast.
void add_softmax(std::vector<Kernel>& kernels, const auto& op, const Scores& s, double passes) {
  if (op.batch * op.heads % 4 == 0) return kernels.push_back(pass_over(passes * s.matrix()));
  const double wide = s.rows * s.keys * sizeof(float);
  kernels.push_back(pass_over(s.matrix() + wide));
  for (int k = 0; k < 2; ++k) kernels.push_back(pass_over(2 * wide));
  kernels.push_back(pass_over(passes * wide));
  kernels.push_back(pass_over(s.matrix() + wide));
}

// Megatron-LM's CoreAttention of 2021 and 2022: scores, softmax with scale and mask, dropout with a
// mask of a byte, product with the values, transposition of what comes out.
std::vector<Kernel> unfused(const Attention& op, DType dtype) {
  const Scores s = scores_of(op, dtype);
  std::vector<Kernel> kernels = {product_of(s)};
  add_softmax(kernels, op, s, 2);
  if (op.dropout.probability > 0) kernels.push_back(pass_over(s.matrix() * (2 + 1 / s.size)));
  kernels.push_back(product_of(s));
  kernels.push_back(pass_over(2 * s.vectors()));
  return kernels;
}
std::vector<Kernel> unfused(const AttentionGradient& op, DType dtype) {
  const Scores s = scores_of(op, dtype);
  std::vector<Kernel> kernels = {pass_over(2 * s.vectors()), product_of(s), product_of(s)};
  if (op.dropout.probability > 0) kernels.push_back(pass_over(s.matrix() * (2 + 1 / s.size)));
  add_softmax(kernels, op, s, 3);
  kernels.push_back(product_of(s));
  kernels.push_back(product_of(s));
  kernels.push_back(pass_over(2 * s.vectors() * (1 + 2 * s.heads_of_kv)));
  return kernels;
}

}  // namespace

std::vector<Kernel> kernels_of(const Op& op, const Stack& stack) {
  const double work = flops(op), bytes = bytes_moved(op);
  if (const auto* forward = std::get_if<Attention>(&op.kind)) {
    if (!stack.fused_attention) return unfused(*forward, op.dtype);
    return {{Kernel::Unit::attention, work, bytes}};
  }
  if (const auto* backward = std::get_if<AttentionGradient>(&op.kind)) {
    if (!stack.fused_attention) return unfused(*backward, op.dtype);
    return {{Kernel::Unit::attention, kScoresAgain * work, bytes}};
  }
  if (std::holds_alternative<RingAttention>(op.kind))
    return {{Kernel::Unit::attention, work, bytes}};
  if (std::holds_alternative<RingAttentionGradient>(op.kind))
    return {{Kernel::Unit::attention, kScoresAgain * work, bytes}};
  const bool matmul =
      std::holds_alternative<Matmul>(op.kind) || std::holds_alternative<ExpertMatmul>(op.kind);
  return {{matmul ? Kernel::Unit::matmul : Kernel::Unit::memory, work, bytes}};
}

double kernel_seconds(const Kernel& kernel, DType dtype, const Machine& machine,
                      const Stack& stack) {
  const bool attention = kernel.unit == Kernel::Unit::attention;
  const bool fp8 = kernel.unit == Kernel::Unit::matmul && stack.fp8_matmul && size_of(dtype) == 2;
  const double peak = fp8 ? machine.fp8_tflops : machine.peak_tflops(dtype),
               share = attention ? machine.attention_efficiency * stack.attention_share
                                 : machine.matmul_efficiency;
  const double compute = kernel.flops / (peak * 1e12 * share * stack.compute_share),
               memory = kernel.bytes / (machine.memory_gb_per_s * 1e9 * machine.memory_efficiency *
                                        stack.memory_share);
  return machine.launch_us * 1e-6 + (kernel.flops > 0 ? std::max(compute, memory) : memory);
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
