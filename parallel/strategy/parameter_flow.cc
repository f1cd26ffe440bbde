#include "parallel/strategy/parameter_flow.h"

#include "workloads/base/mutation.h"

namespace mb {

ParameterFlow::ParameterFlow(Stage& stage, const std::vector<Slot>& slots)
    : stage_(stage),
      builder_(stage.builder),
      values_(stage.facts.size(), kNone),
      ahead_(stage.facts.size(), kNone),
      written_(stage.values.size(), false),
      remaining_(stage.facts.size()),
      gradient_runs_(stage.facts.size()),
      slice_written_(stage.facts.size(), false) {
  const int micro_batches = stage.options.micro_batches;
  for (std::size_t b = 0; b < stage.facts.size(); ++b) {
    remaining_[b] = stage.facts[b].contributors * micro_batches;
    if (!stage.buckets()[b].whole_gradient) gradient_runs_[b].resize(micro_batches);
  }
  for (const Slot& slot : slots) {
    if (slot.pass == Pass::weight_grad) continue;  // reads no parameter
    const std::vector<PreparedBlock>& blocks = stage.blocks[slot.chunk];
    const auto count = static_cast<int>(blocks.size());
    const bool forward = slot.pass == Pass::forward;
    for (int b = 0; b < count; ++b) {
      const PreparedBlock& block = blocks[forward ? b : count - 1 - b];
      uses_.push_back({forward ? block.forward_values : block.backward_values,
                       stage.label(slot.pass, 0, slot.micro_batch, block.layer, slot.chunk)});
    }
  }
}

void ParameterFlow::enter() {
  for (int b : uses_[next_use_].buckets) {
    if (is_gathered(b)) continue;
    values_[b] = ahead_[b] != kNone ? ahead_[b] : gather(b, uses_[next_use_].label);
    ahead_[b] = kNone;
  }
  ++next_use_;
  if (!stage_.options.overlap.gather || next_use_ == uses_.size()) return;
  for (int b : uses_[next_use_].buckets) {
    if (!is_gathered(b)) ahead_[b] = gather(b, uses_[next_use_].label);
  }
}

// Nothing has to be done for its values.
bool ParameterFlow::is_gathered(int b) const {
  return stage_.buckets()[b].whole_value || (!stage_.options.reshard && values_[b] != kNone);
}

// The first of the views of a bucket's gathered parameters.
TensorId ParameterFlow::gather(int b, Label label) {
  const Bucket& bucket = stage_.buckets()[b];
  const Stage::BucketFacts& facts = stage_.facts[b];
  const TensorId whole = builder_.tensor(facts.gathered, bucket.elements, stage_.options.dtype,
                                         MemoryClass::gathered, -1, label.micro_batch);
  label.site = facts.gathered;
  emit_gather(stage_, b, bucket.value, whole, label);
  return views_of(b, whole, MemoryClass::gathered, stage_.names);
}

TensorId ParameterFlow::views_of(int b, TensorId whole, MemoryClass memory,
                                 const std::vector<std::uint16_t>& names) {
  const auto first = static_cast<TensorId>(builder_.program().tensors.size());
  for (int p : stage_.facts[b].parameters) {
    const Parameter& parameter = builder_.program().parameters[p];
    builder_.view(whole, names[p], parameter.offset, parameter.spec.local_elements(), memory);
  }
  return first;
}

TensorId ParameterFlow::value(int p) const {
  if (stage_.values[p] != kNone) return stage_.values[p];
  return values_[builder_.program().parameters[p].bucket] + stage_.place[p];
}

TensorId ParameterFlow::gradient(int p, int micro_batch) {
  if (stage_.gradients[p] != kNone) return stage_.gradients[p];
  const int b = builder_.program().parameters[p].bucket;
  GradientRun& run = gradient_runs_[b][micro_batch];
  if (run.whole == kNone) {
    const Bucket& bucket = stage_.buckets()[b];
    run.whole =
        builder_.tensor(stage_.facts[b].gradient, bucket.elements, main_dtype(stage_.options.dtype),
                        MemoryClass::bucket, -1, micro_batch);
    run.views = views_of(b, run.whole, MemoryClass::bucket, stage_.gradient_names);
    run.written.assign(stage_.facts[b].parameters.size(), false);
  }
  return run.views + stage_.place[p];
}

bool ParameterFlow::mark_written(int p, int micro_batch) {
  const auto set = [](auto&& flag) {
    const bool before = flag;
    flag = true;
    return before;
  };
  if (stage_.gradients[p] != kNone) return set(written_[p]);
  const int b = builder_.program().parameters[p].bucket;
  return set(gradient_runs_[b][micro_batch].written[stage_.place[p]]);
}

void ParameterFlow::complete(const PreparedBlock& block, const Slot& slot) {
  const int micro_batch = slot.micro_batch;
  for (int b : block.buckets) {
    if (slot.pass == (stage_.facts[b].early ? Pass::weight_grad : Pass::input_grad)) continue;
    const Bucket& bucket = stage_.buckets()[b];
    const bool last = --remaining_[b] == 0;
    if (bucket.whole_gradient) {
      if (last || mutated("reduced_again")) reduce(b, bucket.gradient, micro_batch, true, true);
      continue;
    }
    GradientRun& run = gradient_runs_[b][micro_batch];
    if (++run.contributors < stage_.facts[b].contributors) continue;
    const bool first = !slice_written_[b];
    slice_written_[b] = true;
    reduce(b, run.whole, micro_batch, first, last);
  }
}

void ParameterFlow::reduce(int b, TensorId whole, int micro_batch, bool first, bool last) {
  const Reduction reduction = emit_reduction(stage_, b, whole, micro_batch, first, last);
  if (!reduction.needs_finish() || !stage_.options.overlap.reduce) {
    finish_reduction(stage_, reduction);
  } else {
    pending_.push_back(reduction);
  }
}

void ParameterFlow::finish_reductions() {
  for (; !pending_.empty(); pending_.pop_front()) finish_reduction(stage_, pending_.front());
}

}  // namespace mb
