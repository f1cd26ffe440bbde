// Software stacks as data: what of a step's time belongs to the program that runs it, not to the
// device. The same model on the same GPUs was measured at 163 and at 126 TFLOP/s under two of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mb {

struct Stack {
  std::string name;
  // One kernel that never writes the scores (Dao et al., FlashAttention, 2022); else two batched
  // matmuls, and softmax and dropout over scores in memory, of which causality saves no half.
  bool fused_attention = true;
  // Autograd's kernels one by one (eager_kernels.h), as PyTorch 1 ran them: a kernel for each
  // gradient that is added to, three for a norm's backward, the loss in fp32 by six.
  bool eager = false;
  // Between stages every tensor rank sends its part of what all of them hold, and the receivers
  // gather it (Narayanan et al., SC 2021, section 4.1); without sequence parallelism alone, under
  // which nobody holds more than a part.
  bool scatter_sends = false;
  // Parameters and what they multiply; attention and all else stay as dtype= says.
  bool fp8_matmul = false;
  // The host waits for every collective that computation follows, as it does for messages.
  bool host_waits = false;
  // What it holds in memory beside the Plan's tensors (memory.h).
  // Transformer Engine's modules under Megatron-LM: a buffer of the model's dtype for each shape
  // that a layer's weights have, which stands in for the gradient that its product has added to the
  // main one, and one for the head's while that runs; attention over context ranks keeps its result
  // twice.
  bool transformer_engine = false;
  // Gradients of fp16 parameters in fp16, in fp32 the owner's slice while the update runs; those of
  // bf16 in bf16 beside the fp32 ones that they are added to (DeepSpeed's ZeroOptimizer and
  // BF16_Optimizer). And the buckets that gradients and parameters travel in.
  bool deepspeed_gradients = false;
  bool keeps_sent = false;  // what a stage has sent, until its gradient comes
  // What the caching allocator reserves in pieces that nothing fits into, at most, as a share of
  // what is allocated; a third of it is expected.
  double fragmentation = 0.24;
  // Of the logits, in fp32, that the loss holds at once; where tensor ranks divide the vocabulary.
  double loss_copies = 0, divided_loss_copies = 0;
  // Of machine.attention_efficiency, which is that of today's kernels: those of 2022 reached 25 to
  // 40 % of an A100's peak where their successors reach 50 to 73 % (Dao, FlashAttention-2, 2023).
  double attention_share = 1;
  // Of these four, at most three are fitted.
  double compute_share = 1;  // of machine.matmul_efficiency and attention_efficiency: clocks that
                             // last, shapes and layouts that a benchmark of matmuls does not have
  double memory_share = 1;   // of machine.memory_efficiency, in operations bound by memory
  double comm_share = 1;     // of the bandwidth and latency of collectives and messages: what a
                             // benchmark of them alone does not have
  double host_us = 0;        // that the host takes to launch a kernel; it runs ahead of the device
  // Of computation and collectives beside each other; 0: they leave each other alone, as the other
  // constants were fitted. 0.12 is 16 SMs of an H100's 132, what NCCL's channels take on a DGX;
  // measured overlap slows computation by 18.9 % in the mean and by up to 40 % (Anatomy of overlap,
  // arXiv 2507.03114).
  double comm_sm_share = 0;   // of the SMs, that a running collective takes
  double comm_slowed_by = 0;  // more that it takes while computation runs, as a share
  bool shares_nics = false;   // what different streams of a rank send between nodes shares its NICs
  double log_sigma = 0;       // spread of measured / predicted of the rows fitted on; 0: not known
  std::string source;         // of the constants, and the rows that they were fitted on
  // Where these rows were measured: the machine, "" if that is not known, and the most nodes.
  std::string fitted_machine;
  int fitted_nodes = 0;
  bool operator==(const Stack&) const = default;
};

const std::vector<Stack>& stacks();
Stack find_stack(std::string_view name);  // throws Error naming the nearest known name
// As set_field, check_machine and the like of machine.h.
void set_field(Stack& stack, std::string_view field, std::string_view value);
void check_stack(const Stack& stack);
std::string to_json(const Stack& stack);
Stack stack_from_json(std::string_view text, std::string_view origin);

}  // namespace mb
