// Slots of a schedule as computation, sends and receives.
#include <algorithm>
#include <array>
#include <optional>

#include "parallel/strategy/parameter_flow.h"
#include "parallel/strategy/stage.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

using Source = PreparedTensor::Source;

// A block's tensors for one micro-batch.
struct BlockRun {
  TensorId instances = kNone;  // the first of its own
  TensorId replayed = kNone;   // likewise, as recomputed by the backward
  TensorId fetched = kNone;    // likewise, as copied back from the second memory space
  TensorId input = kNone, output = kNone, d_output = kNone, d_input = kNone;
  TensorId host = kNone;  // likewise, in the second memory space; the input's comes last
  TensorId host_input = kNone;
};

class ScheduleWriter {
 public:
  ScheduleWriter(Stage& stage, const std::vector<Slot>& slots, const std::vector<Receive>& receives)
      : stage_(stage),
        builder_(stage.builder),
        slots_(slots),
        receives_(receives),
        micro_batches_(stage.options.micro_batches),
        batches_(stage.chunks * micro_batches_),
        inputs_(stage.chunks * micro_batches_, kNone),
        gradients_(stage.chunks * micro_batches_, kNone),
        parameters_(stage, slots) {
    for (const std::vector<PreparedBlock>& chunk : stage.blocks)
      runs_.emplace_back(chunk.size() * micro_batches_);
  }

  void write() {
    auto next = receives_.begin();
    for (int s = 0; s < static_cast<int>(slots_.size()); ++s) {
      // Inputs are asked for before an earlier slot computes, so that they travel meanwhile; a
      // result has to be gone before the slot after next, so that two of them are in flight at
      // most.
      for (; next != receives_.end() && next->before <= s; ++next) receive(slots_[next->slot]);
      if (sends_[0] != kNone) builder_.join(Stream::compute, sends_[0]);
      sends_ = {sends_[1], kNone};
      if (slots_[s].pass == Pass::forward) {
        forward(slots_[s]);
      } else {
        backward(slots_[s]);
      }
    }
    parameters_.finish_reductions();
  }

 private:
  BlockRun& run(int chunk, int block, int micro_batch) {
    return runs_[chunk]
                [static_cast<std::size_t>(micro_batch) * stage_.blocks[chunk].size() + block];
  }
  std::size_t at(const Slot& slot) const {
    return static_cast<std::size_t>(slot.chunk) * micro_batches_ + slot.micro_batch;
  }
  TensorId hidden(std::uint16_t name, MemoryClass memory, int micro_batch, int layer = -1) {
    return builder_.tensor(name, stage_.hidden_elements, stage_.options.dtype, memory, layer,
                           micro_batch);
  }

  // --- Messages ---------------------------------------------------------------------------------

  // Who computes the stage before (of a forward) or after (of a backward) the slot's, or the one
  // that takes its result.
  std::optional<RankChunk> neighbour(const Slot& slot, bool of_result) const {
    const int own = stage_of(stage_.placement, stage_.rank, slot.chunk, stage_.ranks);
    const int other = own + ((slot.pass == Pass::forward) == of_result ? 1 : -1);
    if (other < 0 || other == stage_.ranks * stage_.chunks) return std::nullopt;
    return place_of(stage_.placement, other, stage_.ranks);
  }
  Label message_label(const Slot& slot) const {
    const bool forward = slot.pass == Pass::forward;
    return stage_.label(forward ? Pass::forward : Pass::backward,
                        forward ? stage_.sites.activations : stage_.sites.gradients,
                        slot.micro_batch, -1, slot.chunk);
  }

  void receive(const Slot& slot) {
    const RankChunk from = *neighbour(slot, false);
    const bool forward = slot.pass == Pass::forward;
    const TensorId tensor =
        forward ? hidden(stage_.sites.hidden, MemoryClass::activation, slot.micro_batch)
                : hidden(stage_.sites.d_hidden, MemoryClass::workspace, slot.micro_batch);
    (forward ? inputs_ : gradients_)[at(slot)] = tensor;
    builder_.emit(Stream::pp_recv, message_label(slot),
                  Recv{static_cast<std::int16_t>(from.rank), static_cast<std::int16_t>(slot.chunk)},
                  {}, {tensor});
  }

  void pass_on(const Slot& slot, TensorId result) {
    const auto to = neighbour(slot, true);
    if (!to) return;
    const bool forward = slot.pass == Pass::forward;
    if (to->rank == stage_.rank) {
      (forward ? inputs_ : gradients_)[at({slot.pass, slot.micro_batch, to->chunk})] = result;
      return;
    }
    sends_[1] = builder_.emit(
        Stream::pp_send, message_label(slot),
        Send{static_cast<std::int16_t>(to->rank), static_cast<std::int16_t>(to->chunk)}, {result},
        {});
    if (!stage_.options.overlap.sends) builder_.join(Stream::compute, sends_[1]);
  }

  // --- Computation ------------------------------------------------------------------------------

  TensorId resolve(const PreparedBlock& block, const BlockRun& run, const Slot& slot,
                   const PreparedTensor& tensor, bool forward) {
    switch (tensor.source) {
      case Source::scalars:
        return stage_.scalars;
      case Source::tokens:
        return batches_[at(slot)].tokens;
      case Source::labels:
        return batches_[at(slot)].labels;
      case Source::input:
        return run.input;
      case Source::output:
        return run.output;
      case Source::d_output:
        return run.d_output;
      case Source::d_input:
        return run.d_input;
      case Source::value:
        return parameters_.value(tensor.index);
      case Source::gradient:
        return parameters_.gradient(tensor.index, slot.micro_batch);
      case Source::view: {
        const TensorId base = resolve(block, run, slot, block.tensors[tensor.index], forward);
        const Tensor of = builder_.program().tensors[base];
        return builder_.view(base, of.name, tensor.first, tensor.elements, of.memory);
      }
      case Source::instance:
        if (!forward && run.replayed != kNone && block.dropped[tensor.index])
          return run.replayed + tensor.index;
        if (!forward && run.fetched != kNone && held(block, slot.micro_batch)[tensor.index])
          return run.fetched + tensor.index;
        return run.instances + tensor.index;
    }
    return kNone;
  }

  void stamp(const PreparedBlock& block, const BlockRun& run, const PreparedStep& step, Pass pass,
             const Slot& slot) {
    std::array<TensorId, kMostOperands> reads, writes;
    std::size_t read = 0, written = 0;
    const bool forward = pass == Pass::forward;
    const auto id = [&](int local) {
      return resolve(block, run, slot, block.tensors[local], forward);
    };
    for (int t : step.reads) reads[read++] = id(t);
    for (int t : step.writes) writes[written++] = id(t);
    bool add = false;
    for (int t : step.gradients) {
      writes[written] = id(t);
      add = parameters_.mark_written(block.tensors[t].index, slot.micro_batch);
      if (mutated("gradient_never_cleared")) add = true;
      if (mutated("gradient_cleared_each_time")) add = false;
      if (add) reads[read++] = writes[written];
      ++written;
    }
    builder_.emit(step.stream,
                  stage_.label(pass, step.site, slot.micro_batch, block.layer, block.chunk),
                  add ? step.accumulating : step.action, std::span(reads.data(), read),
                  std::span(writes.data(), written));
  }

  TensorId new_instances(const PreparedBlock& block, int micro_batch) {
    const auto first = static_cast<TensorId>(builder_.program().tensors.size());
    for (const InstanceTensor& t : block.instances)
      builder_.tensor(t.name, t.elements, t.dtype, t.memory, block.layer, micro_batch);
    return first;
  }

  void forward(const Slot& slot) {
    const std::vector<PreparedBlock>& blocks = stage_.blocks[slot.chunk];
    if (stage_.is_first(slot.chunk) || stage_.is_last(slot.chunk)) load(slot);
    TensorId x = inputs_[at(slot)];
    for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
      const PreparedBlock& block = blocks[b];
      BlockRun& run = this->run(slot.chunk, b, slot.micro_batch);
      parameters_.enter();
      run.instances = new_instances(block, slot.micro_batch);
      run.input = x;
      if (block.has_output)
        run.output =
            hidden(stage_.sites.hidden, MemoryClass::activation, slot.micro_batch, block.layer);
      for (const PreparedStep& step : block.forward) stamp(block, run, step, Pass::forward, slot);
      if (stage_.options.offload_activations && block.layer >= 0) put_away(block, run, slot);
      x = run.output;
    }
    pass_on(slot, x);
  }

  void backward(const Slot& slot) {
    const std::vector<PreparedBlock>& blocks = stage_.blocks[slot.chunk];
    const bool inputs = slot.pass != Pass::weight_grad, weights = slot.pass != Pass::input_grad;
    // The stage before does not wait for sums of gradients that nothing runs beside. Where ranks
    // have several stages, gradients go around in circles: who waits for each send, as without its
    // overlap, would then wait for a receive that comes after sums, and that for another such send.
    const bool in_line = stage_.options.overlap.sends || stage_.blocks.size() == 1;
    const bool sends_first = inputs && in_line && !stage_.options.overlap.reduce && !blocks.empty();
    TensorId dy = gradients_[at(slot)];
    for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
      const PreparedBlock& block = blocks[b];
      BlockRun& run = this->run(slot.chunk, b, slot.micro_batch);
      if (inputs) {
        parameters_.enter();
        run.d_output = dy;
        if (block.has_input)
          run.d_input =
              hidden(stage_.sites.d_hidden, MemoryClass::workspace, slot.micro_batch, block.layer);
        fetch(block, run, slot);
        if (b > 0) fetch(blocks[b - 1], this->run(slot.chunk, b - 1, slot.micro_batch), slot);
        if (stage_.recomputes(block, slot.micro_batch)) {
          run.replayed = new_instances(block, slot.micro_batch);
          for (int s : block.replay) stamp(block, run, block.forward[s], Pass::recompute, slot);
        }
        dy = run.d_input;
      }
      for (const PreparedStep& step : block.backward) {
        const bool twice = inputs && mutated("weight_half_twice");
        if (step.weight_half ? weights || twice : inputs) stamp(block, run, step, slot.pass, slot);
      }
      parameters_.finish_reductions();
      if (b == 0 && sends_first) pass_on(slot, dy);
      const bool forgets = slot.pass == Pass::weight_grad && mutated("weight_half_not_reduced");
      if (!forgets) parameters_.complete(block, slot);
    }
    if (inputs && !sends_first) pass_on(slot, dy);
  }

  // --- The second memory space ------------------------------------------------------------------

  // What the backward will read of the forward's instances, or has to recompute the rest from.
  const std::vector<bool>& held(const PreparedBlock& block, int micro_batch) const {
    return stage_.recomputes(block, micro_batch) ? block.saved : block.wanted;
  }

  void put_away(const PreparedBlock& block, BlockRun& run, const Slot& slot) {
    const std::vector<bool>& kept = held(block, slot.micro_batch);
    const Label label = stage_.label(Pass::forward, stage_.sites.offload, slot.micro_batch,
                                     block.layer, block.chunk);
    InstructionId last = kNone;
    const auto copy = [&](TensorId from) {
      const Tensor tensor = builder_.program().tensors[from];
      const TensorId to =
          builder_.tensor(tensor.name, tensor.elements, tensor.dtype, MemoryClass::activation,
                          block.layer, slot.micro_batch, true);
      last = builder_.emit(Stream::copy, label, Copy{}, {from}, {to});
      return to;
    };
    run.host = static_cast<TensorId>(builder_.program().tensors.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) copy(run.instances + static_cast<TensorId>(i));
    }
    if (block.has_input) run.host_input = copy(run.input);
    // The device's copy may go once it has left, which the block after next waits for.
    if (leaving_ != kNone) builder_.join(Stream::compute, leaving_);
    leaving_ = last;
  }

  void fetch(const PreparedBlock& block, BlockRun& run, const Slot& slot) {
    if (run.host == kNone || run.fetched != kNone) return;
    const std::vector<bool>& kept = held(block, slot.micro_batch);
    const Label label = stage_.label(Pass::backward, stage_.sites.offload, slot.micro_batch,
                                     block.layer, block.chunk);
    run.fetched = new_instances(block, slot.micro_batch);
    TensorId from = run.host;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i])
        builder_.emit(Stream::copy, label, Copy{}, {from++},
                      {run.fetched + static_cast<TensorId>(i)});
    }
    if (!block.has_input) return;
    run.input = hidden(stage_.sites.hidden, MemoryClass::activation, slot.micro_batch, block.layer);
    builder_.emit(Stream::copy, label, Copy{}, {run.host_input}, {run.input});
  }

  void load(const Slot& slot) {
    const bool tokens = stage_.is_first(slot.chunk), labels = stage_.is_last(slot.chunk);
    const std::int64_t rows =
        stage_.options.micro_batch * stage_.model.sequence / stage_.shape.context_ways;
    Batch& batch = batches_[at(slot)];
    std::vector<TensorId> writes;
    const auto add = [&](std::uint16_t name) {
      writes.push_back(
          builder_.tensor(name, rows, DType::int32, MemoryClass::input, -1, slot.micro_batch));
      return writes.back();
    };
    if (tokens) batch.tokens = add(stage_.sites.tokens);
    if (labels) batch.labels = add(stage_.sites.labels);
    builder_.emit(Stream::compute,
                  stage_.label(Pass::input, stage_.sites.batch, slot.micro_batch, -1, slot.chunk),
                  Compute{stage_.ops.load[tokens][labels]}, {}, writes);
  }

  Stage& stage_;
  ProgramBuilder& builder_;
  const std::vector<Slot>& slots_;
  const std::vector<Receive>& receives_;
  int micro_batches_;
  std::vector<std::vector<BlockRun>> runs_;           // by chunk; micro-batch and block
  std::vector<Batch> batches_;                        // by chunk and micro-batch, as the next two
  std::vector<TensorId> inputs_, gradients_;          // received; kNone at the ends
  std::array<InstructionId, 2> sends_{kNone, kNone};  // of the slots before the last and the last
  ParameterFlow parameters_;
  InstructionId leaving_ = kNone;  // the last block's copies
};

}  // namespace

void emit_schedule(Stage& stage, const std::vector<Slot>& slots,
                   const std::vector<Receive>& receives) {
  ScheduleWriter(stage, slots, receives).write();
}

}  // namespace mb
