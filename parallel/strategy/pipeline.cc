// Slots of a schedule as computation, sends and receives.
#include <algorithm>
#include <array>

#include "parallel/schedule/schedule.h"
#include "parallel/strategy/stage.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// A block's tensors for one micro-batch.
struct BlockRun {
  TensorId instances = kNone;  // the first of its own
  TensorId input = kNone, output = kNone;
};

class ScheduleWriter {
 public:
  explicit ScheduleWriter(Stage& stage)
      : stage_(stage),
        builder_(stage.builder),
        blocks_(static_cast<int>(stage.blocks.size())),
        runs_(stage.blocks.size() * stage.options.micro_batches),
        batches_(stage.options.micro_batches),
        inputs_(stage.options.micro_batches, kNone),
        gradients_(stage.options.micro_batches, kNone) {}

  void write(const std::vector<Slot>& slots) {
    const auto is_backward = [](const Slot& slot) { return slot.pass == Pass::backward; };
    const auto first_backward = std::find_if(slots.begin(), slots.end(), is_backward);
    const auto last_backward = std::find_if(slots.rbegin(), slots.rend(), is_backward).base() - 1;
    if (!slots.empty()) receive(slots.front());
    for (auto slot = slots.begin(); slot != slots.end(); ++slot) {
      // The next slot's input is asked for before this one computes, so that it travels meanwhile;
      // a result has to be gone before the slot after next, so that two of them are in flight at
      // most.
      if (slot + 1 != slots.end()) receive(*(slot + 1));
      if (sends_[0] != kNone) builder_.join(Stream::compute, sends_[0]);
      sends_ = {sends_[1], kNone};
      if (slot->pass == Pass::forward) {
        forward(slot->micro_batch);
      } else {
        backward(slot->micro_batch, slot == first_backward, slot == last_backward);
      }
    }
  }

 private:
  BlockRun& run(int block, int micro_batch) {
    return runs_[static_cast<std::size_t>(micro_batch) * blocks_ + block];
  }

  TensorId hidden(std::uint16_t name, MemoryClass memory, int micro_batch, int layer = -1) {
    return builder_.tensor(name, stage_.hidden_elements(), stage_.options.dtype, memory, layer,
                           micro_batch);
  }

  void receive(const Slot& slot) {
    const bool forward = slot.pass == Pass::forward;
    if (forward ? stage_.first() : stage_.last()) return;
    const TensorId tensor =
        forward ? hidden(stage_.sites.hidden, MemoryClass::activation, slot.micro_batch)
                : hidden(stage_.sites.d_hidden, MemoryClass::workspace, slot.micro_batch);
    (forward ? inputs_ : gradients_)[slot.micro_batch] = tensor;
    const auto from = static_cast<std::int16_t>(stage_.index + (forward ? -1 : 1));
    builder_.emit(
        Stream::pp_recv,
        stage_.label(slot.pass, forward ? stage_.sites.activations : stage_.sites.gradients,
                     slot.micro_batch),
        Recv{from}, {}, {tensor});
  }

  void send(Pass pass, int micro_batch, TensorId tensor) {
    const bool forward = pass == Pass::forward;
    const auto to = static_cast<std::int16_t>(stage_.index + (forward ? 1 : -1));
    sends_[1] = builder_.emit(
        Stream::pp_send,
        stage_.label(pass, forward ? stage_.sites.activations : stage_.sites.gradients,
                     micro_batch),
        Send{to}, {tensor}, {});
  }

  struct Passing {
    TensorId tokens, labels, input, output, d_output, d_input;
  };

  void stamp(const PreparedBlock& block, const std::vector<PreparedStep>& steps, Pass pass,
             int micro_batch, TensorId instances, const Passing& passing) {
    const auto resolve = [&](int local) {
      const PreparedTensor& tensor = block.tensors[local];
      using Source = PreparedTensor::Source;
      switch (tensor.source) {
        case Source::fixed:
          return tensor.index;
        case Source::instance:
          return instances + tensor.index;
        case Source::tokens:
          return passing.tokens;
        case Source::labels:
          return passing.labels;
        case Source::input:
          return passing.input;
        case Source::output:
          return passing.output;
        case Source::d_output:
          return passing.d_output;
        case Source::d_input:
          return passing.d_input;
      }
      return kNone;
    };
    for (const PreparedStep& step : steps) {
      std::array<TensorId, kMostOperands> reads, writes;
      for (std::size_t i = 0; i < step.reads.size(); ++i) reads[i] = resolve(step.reads[i]);
      for (std::size_t i = 0; i < step.writes.size(); ++i) writes[i] = resolve(step.writes[i]);
      builder_.emit(step.stream, stage_.label(pass, step.site, micro_batch, block.layer),
                    step.action, std::span(reads.data(), step.reads.size()),
                    std::span(writes.data(), step.writes.size()));
    }
  }

  void forward(int micro_batch) {
    Batch& batch = batches_[micro_batch];
    if (stage_.first() || stage_.last()) load(batch, micro_batch);
    TensorId x = inputs_[micro_batch];
    for (int b = 0; b < blocks_; ++b) {
      const PreparedBlock& block = stage_.blocks[b];
      BlockRun& run = this->run(b, micro_batch);
      run.instances = static_cast<TensorId>(builder_.program().tensors.size());
      for (const InstanceTensor& t : block.instances)
        builder_.tensor(t.name, t.elements, t.dtype, t.memory, block.layer, micro_batch);
      run.input = x;
      const bool has_output = !(stage_.last() && b == blocks_ - 1);
      run.output = has_output ? hidden(stage_.sites.hidden, MemoryClass::activation, micro_batch,
                                       block.layer)
                              : kNone;
      stamp(block, block.forward, Pass::forward, micro_batch, run.instances,
            {batch.tokens, batch.labels, run.input, run.output, kNone, kNone});
      x = run.output;
    }
    if (!stage_.last()) send(Pass::forward, micro_batch, x);
  }

  void backward(int micro_batch, bool first, bool last) {
    const Batch& batch = batches_[micro_batch];
    TensorId dy = gradients_[micro_batch];
    for (int b = blocks_ - 1; b >= 0; --b) {
      const PreparedBlock& block = stage_.blocks[b];
      const BlockRun& run = this->run(b, micro_batch);
      const bool has_input = !(stage_.first() && b == 0);
      const TensorId dx = has_input ? hidden(stage_.sites.d_hidden, MemoryClass::workspace,
                                             micro_batch, block.layer)
                                    : kNone;
      stamp(block, first ? block.backward_first : block.backward_next, Pass::backward, micro_batch,
            run.instances, {batch.tokens, batch.labels, run.input, run.output, dy, dx});
      if (last) emit_bucket_reduction(stage_, b, micro_batch);
      dy = dx;
    }
    if (!stage_.first()) send(Pass::backward, micro_batch, dy);
  }

  struct Batch {
    TensorId tokens = kNone, labels = kNone;
  };

  void load(Batch& batch, int micro_batch) {
    const std::int64_t rows = stage_.options.micro_batch * stage_.model.sequence;
    std::vector<TensorId> writes;
    const auto add = [&](std::uint16_t name) {
      writes.push_back(
          builder_.tensor(name, rows, DType::int32, MemoryClass::input, -1, micro_batch));
      return writes.back();
    };
    if (stage_.first()) batch.tokens = add(stage_.sites.tokens);
    if (stage_.last()) batch.labels = add(stage_.sites.labels);
    builder_.emit(Stream::compute, stage_.label(Pass::input, stage_.sites.batch, micro_batch),
                  Compute{stage_.ops.load}, {}, writes);
  }

  Stage& stage_;
  ProgramBuilder& builder_;
  int blocks_;
  std::vector<BlockRun> runs_;                        // by micro-batch and block
  std::vector<Batch> batches_;                        // by micro-batch
  std::vector<TensorId> inputs_, gradients_;          // received, by micro-batch; kNone at the ends
  std::array<InstructionId, 2> sends_{kNone, kNone};  // of the slots before the last and the last
};

}  // namespace

void emit_schedule(Stage& stage) {
  const Schedule& schedule = find_schedule(stage.options.schedule);
  require(schedule.placement == Placement::linear && !schedule.splits_backward,
          "schedule=", schedule.name, " has no strategy here yet; use gpipe or 1f1b");
  std::vector<Slot> slots = schedule.order(
      stage.index, {.ranks = stage.count, .micro_batches = stage.options.micro_batches});
  ScheduleWriter(stage).write(slots);
  stage.builder.program().slots = std::move(slots);
}

}  // namespace mb
