#include "parallel/cost/memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "parallel/plan/liveness.h"

namespace mb {
namespace {

constexpr std::int64_t kSegment = 2 << 20, kBlock = 512;
// Buffers of an NCCL communicator, 342 to 392 MiB for 2 to 8 ranks (aiconfigurator at 095f58a).
constexpr double kCommunicator = 0.37e9;
// DeepSpeed's reduce_bucket_size and allgather_bucket_size, by default, in elements.
constexpr std::int64_t kDeepSpeedBuckets = 2 * 500'000'000;

bool is_loss(const OpKind& kind) {
  return std::holds_alternative<VocabularyMax>(kind) ||
         std::holds_alternative<VocabularySums>(kind) ||
         std::holds_alternative<CrossEntropy>(kind) ||
         std::holds_alternative<CrossEntropyGradient>(kind);
}

// What a stack holds beside the tensors of a Program.
class Beside {
 public:
  Beside(const Plan& plan, const Program& program, const Stack& stack)
      : plan_(plan), program_(program), stack_(stack) {
    for (const Instruction& i : program.instructions) {
      const auto* compute = std::get_if<Compute>(&i.action);
      if (!compute) continue;
      const Op& op = plan.op(*compute);
      if (const auto* loss = std::get_if<CrossEntropyGradient>(&op.kind))
        logits_ = std::max(logits_, loss->rows * loss->n);
      if (const auto* update = std::get_if<UpdateParameters>(&op.kind)) {
        updated_ += update->slice.n;
        replicates_ |= update->slice.ways == 1 && plan.mesh.data_size() > 1;
      }
      if (const auto* ring = std::get_if<RingAttention>(&op.kind); ring && ring->step == 0)
        ring_results_.insert(program.root(program.writes(i)[0]));
      if (const auto* product = weight_gradient(i); product && !is_head(i))
        shapes_.insert({product->m, product->n, size_of(op.dtype)});
    }
  }

  std::int64_t bytes(TensorId id) const {
    const Tensor& tensor = program_.tensors[id];
    if (tensor.host) return 0;
    if (stack_.transformer_engine && ring_results_.contains(id)) return 2 * tensor.bytes;
    if (!stack_.deepspeed_gradients) return tensor.bytes;
    if (half_only() && tensor.memory == MemoryClass::bucket) return 0;  // summed where they lie
    const bool gradient = tensor.memory == MemoryClass::gradient && tensor.persistent;
    if (!gradient || size_of(tensor.dtype) == 2) return tensor.bytes;
    return half_only() ? tensor.bytes / 2 : tensor.bytes / 2 * 3;
  }

  std::int64_t always() const {
    std::int64_t bytes = 0;
    if (stack_.transformer_engine) {
      for (const auto& [m, n, size] : shapes_) bytes += m * n * size;
    }
    if (stack_.deepspeed_gradients && plan_.mesh.data_size() > 1) bytes += 2 * kDeepSpeedBuckets;
    return bytes;
  }
  // While an instruction runs.
  std::int64_t during(const Instruction& i) const {
    const auto* compute = std::get_if<Compute>(&i.action);
    if (!compute) return 0;
    const Op& op = plan_.op(*compute);
    if (is_loss(op.kind)) {
      const bool divided = plan_.mesh.size(Axis::tp) > 1;
      const double copies = divided ? stack_.divided_loss_copies : stack_.loss_copies;
      return std::llround(4 * copies * static_cast<double>(logits_));
    }
    // A copy in fp32; without ZeRO, one of each gradient and all of them in a row.
    if (half_only() && std::holds_alternative<UpdateParameters>(op.kind))
      return (replicates_ ? 8 : 4) * updated_;
    const auto* product = stack_.transformer_engine && is_head(i) ? weight_gradient(i) : nullptr;
    return product ? product->m * product->n * size_of(op.dtype) : 0;
  }
  // From an instruction on.
  std::int64_t from(const Instruction& i) {
    if (!stack_.keeps_sent) return 0;
    const auto key = std::pair(i.label.micro_batch, i.label.chunk);
    const bool forward = i.label.pass == Pass::forward;
    if (std::holds_alternative<Send>(i.action) && forward)
      return sent_[key] = payload_bytes(program_, i);
    const Pass pass = i.label.pass;
    const bool back = pass == Pass::recompute || pass == Pass::backward || pass == Pass::input_grad;
    if (!back || !std::holds_alternative<Compute>(i.action)) return 0;
    const auto sent = sent_.find(key);
    if (sent == sent_.end()) return 0;
    const std::int64_t bytes = sent->second;
    sent_.erase(sent);
    return -bytes;
  }

 private:
  bool half_only() const { return stack_.deepspeed_gradients && fp16_; }
  bool is_head(const Instruction& i) const { return plan_.site(i) == "head"; }
  const Matmul* weight_gradient(const Instruction& i) const {
    const auto* compute = std::get_if<Compute>(&i.action);
    const auto* product = compute ? std::get_if<Matmul>(&plan_.op(*compute).kind) : nullptr;
    return product && product->to_main ? product : nullptr;
  }

  const Plan& plan_;
  const Program& program_;
  const Stack& stack_;
  bool fp16_ = std::any_of(plan_.ops.begin(), plan_.ops.end(),
                           [](const Op& op) { return op.dtype == DType::fp16; });
  std::int64_t logits_ = 0, updated_ = 0;  // elements
  bool replicates_ = false;
  std::set<TensorId> ring_results_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shapes_;  // of weights
  std::map<std::pair<int, int>, std::int64_t> sent_;  // by micro-batch and chunk
};

std::int64_t peak_bytes(const Plan& plan, const Program& program, const Stack& stack) {
  Beside beside(plan, program, stack);
  std::int64_t live = beside.always();
  for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
    if (program.tensors[t].base == kNone && program.tensors[t].persistent) live += beside.bytes(t);
  }
  std::int64_t peak = live;
  const Lifetimes lifetimes(program);
  for (InstructionId i = 0; i < static_cast<InstructionId>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const TensorId t : lifetimes.born_at(i)) live += beside.bytes(t);
    peak = std::max(peak, live + beside.during(instruction));
    live += beside.from(instruction);
    for (const TensorId t : lifetimes.dead_after(i)) live -= beside.bytes(t);
  }
  return peak;
}

bool holds_more(const Stack& stack) {
  return stack.deepspeed_gradients || stack.keeps_sent || stack.transformer_engine ||
         stack.loss_copies > 0 || stack.divided_loss_copies > 0;
}

}  // namespace

std::int64_t fragmentation_of(std::int64_t allocated, const Stack& stack) {
  return std::llround(stack.fragmentation * static_cast<double>(allocated));
}

std::int64_t library_bytes(const Mesh& mesh, const Machine& machine) {
  int communicators = mesh.world() > 1 ? 1 : 0;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (mesh.size(static_cast<Axis>(axis)) > 1) ++communicators;
  }
  if (mesh.size(Axis::pp) > 1) communicators += 2;  // with the stages before and after
  const bool talks = machine.library_gb > 0;        // else ranks share the memory of a host
  return std::llround(1e9 * machine.library_gb + (talks ? kCommunicator * communicators : 0));
}

StepMemory memory_of(const Plan& plan, const Machine& machine, const Stack& stack) {
  StepMemory most;
  for (const Program& program : plan.programs) {
    StepMemory memory{.planned = memory_peak(program).total_bytes};
    if (holds_more(stack)) memory.stack = peak_bytes(plan, program, stack) - memory.planned;
    for (const Tensor& tensor : program.tensors) {
      if (tensor.persistent && tensor.base == kNone && !tensor.host)
        memory.rounding += (kBlock - tensor.bytes % kBlock) % kBlock;
    }
    memory.rounding += kSegment - memory.planned % kSegment;
    if (memory.allocated() > most.allocated()) most = memory;
  }
  most.fragmentation = fragmentation_of(most.allocated(), stack);
  most.library = library_bytes(plan.mesh, machine);
  most.context = std::llround(machine.context_gb * 1e9);
  return most;
}

}  // namespace mb
