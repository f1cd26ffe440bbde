// The end of a step: gradient norm, the step's sums over the world, the update of every parameter.
#include <array>
#include <optional>
#include <vector>

#include "parallel/strategy/stage.h"

namespace mb {
namespace {

// Optimizer state of a bucket for the time of its update: where it lies, or, from the second memory
// space, copies that travel while the bucket before is updated.
class State {
 public:
  State(Stage& stage, int b) : stage_(stage), bucket_(stage.buckets()[b]) {
    kept_ = {bucket_.main, bucket_.m, bucket_.v};
    here_ = kept_;
    if (!stage.options.offload_optimizer) return;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i] == kNone) continue;
      const Tensor tensor = stage.builder.program().tensors[kept_[i]];
      here_[i] =
          stage.builder.tensor(tensor.name, tensor.elements, tensor.dtype, tensor.memory, -1, -1);
      copy(kept_[i], here_[i]);
    }
  }

  TensorId main() const { return here_[0]; }
  TensorId m() const { return here_[1]; }
  TensorId v() const { return here_[2]; }

  // The last copy back; kNone if there is none.
  InstructionId put_back() const {
    InstructionId last = kNone;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i] != here_[i]) last = copy(here_[i], kept_[i]);
    }
    return last;
  }

 private:
  InstructionId copy(TensorId from, TensorId to) const {
    return stage_.builder.emit(Stream::copy, stage_.label(Pass::optimizer, stage_.sites.offload),
                               Copy{}, {from}, {to});
  }

  Stage& stage_;
  Bucket bucket_;
  std::array<TensorId, 3> kept_, here_;
};

void emit_update(Stage& stage, int b, const State& state) {
  const Bucket bucket = stage.buckets()[b];
  std::vector<TensorId> reads = {bucket.gradient, stage.scalars}, writes;
  const auto update = [&](TensorId tensor) {
    if (tensor == kNone) return;
    reads.push_back(tensor);
    writes.push_back(tensor);
  };
  update(state.main() == kNone ? bucket.value : state.main());
  update(state.m());
  update(state.v());
  if (state.main() != kNone) update(bucket.value);
  stage.builder.emit(Stream::compute, stage.label(Pass::optimizer, stage.sites.optimizer),
                     Compute{stage.facts[b].update}, reads, writes);
}

}  // namespace

void emit_optimizer(Stage& stage) {
  const auto count = static_cast<int>(stage.facts.size());
  for (int b = 0; b < count; ++b) {
    stage.builder.emit(Stream::compute, stage.label(Pass::optimizer, stage.sites.norm),
                       Compute{stage.facts[b].norm}, {stage.buckets()[b].gradient, stage.scalars},
                       {stage.scalars});
  }
  if (stage.mesh.world() > 1) {
    stage.builder.emit(Stream::dp, stage.label(Pass::optimizer, stage.sites.scalars),
                       Collective{CollectiveKind::all_reduce, ReduceOp::sum, kWorld}, {stage.sums},
                       {stage.sums});
  }

  std::array<InstructionId, 2> leaving{kNone, kNone};  // of the buckets before the last, the last
  std::optional<State> next;
  if (count > 0) next.emplace(stage, 0);
  for (int b = 0; b < count; ++b) {
    const State state = *next;
    if (leaving[0] != kNone) stage.builder.join(Stream::compute, leaving[0]);
    if (b + 1 < count) next.emplace(stage, b + 1);
    emit_update(stage, b, state);
    leaving = {leaving[1], state.put_back()};
    const Bucket& bucket = stage.buckets()[b];
    // Else it opens the next step, beside the forward.
    if (bucket.ways > 1 && bucket.whole_value && !stage.options.overlap.gather)
      emit_gather(stage, b, bucket.value, bucket.value,
                  stage.label(Pass::optimizer, stage.facts[b].gathered));
  }
  if (stage.options.dynamic_loss_scale) {
    stage.builder.emit(Stream::compute, stage.label(Pass::optimizer, stage.sites.loss_scale),
                       Compute{stage.ops.update_loss_scale}, {stage.scalars}, {stage.scalars});
  }
}

}  // namespace mb
