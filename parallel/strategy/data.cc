// Data parallelism and ZeRO: gradients summed over data ranks bucket by bucket, each as soon as the
// last backward has completed it (Li et al., PyTorch Distributed, VLDB 2020, section 3.2), and
// parameters gathered from the owners of their slices.
#include <algorithm>

#include "parallel/strategy/stage.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

Group with(Group a, Group b) { return {static_cast<std::uint8_t>(a.axes | b.axes)}; }

InstructionId emit_collective(Stage& stage, const Label& label, const Collective& collective,
                              TensorId from, TensorId to) {
  return stage.builder.emit(Stream::dp, label, collective, {from}, {to});
}

// A sum that the backward hides, or waits for.
void emit_sum(Stage& stage, const Label& label, const Collective& collective, TensorId from,
              TensorId to) {
  const InstructionId id = emit_collective(stage, label, collective, from, to);
  if (!stage.options.overlap.reduce) stage.builder.join(Stream::compute, id);
}

// In place over what a rank keeps of a bucket's gradient.
void emit_sum_of_slice(Stage& stage, int b, Group group, std::uint16_t site) {
  if (!group.ends && stage.mesh.group_size(group) == 1) return;
  const Bucket& bucket = stage.buckets()[b];
  Collective sum{CollectiveKind::all_reduce, ReduceOp::sum, group};
  if (bucket.whole_gradient && bucket.ways > 1) {
    sum.slices = bucket.ways;
    sum.owners = bucket.owners;
  }
  emit_sum(stage, stage.label(Pass::reduce, site), sum, bucket.gradient, bucket.gradient);
}

// Key and value heads that several tensor ranks hold get their gradient from all of them.
void emit_shared_head_sums(Stage& stage, int b, TensorId whole, const Label& label) {
  if (mutated("shared_heads_apart")) return;
  for (int p : stage.facts[b].parameters) {
    const Parameter parameter = stage.builder.program().parameters[p];
    if (parameter.spec.split != Split::rows) continue;
    for (const ParameterSpec::Run& run : parameter.spec.runs()) {
      if (run.copies == 1) continue;
      Group group = group_of(Axis::tp);
      group.part = static_cast<std::uint16_t>(run.copies);
      const TensorId view =
          stage.builder.view(whole, stage.gradient_names[p], parameter.offset + run.begin,
                             run.end - run.begin, stage.builder.program().tensors[whole].memory);
      emit_sum(stage, label, {CollectiveKind::all_reduce, ReduceOp::sum, group}, view, view);
    }
  }
}

}  // namespace

void emit_gather(Stage& stage, int b, TensorId from, TensorId to, const Label& label) {
  const Collective gather = {CollectiveKind::all_gather, ReduceOp::sum, stage.buckets()[b].owners};
  // A fault that doubles traffic and changes no bit: what a comparison of traffic has to notice.
  if (mutated("gathered_twice")) emit_collective(stage, label, gather, from, to);
  const InstructionId id = emit_collective(stage, label, gather, from, to);
  if (!stage.options.overlap.gather) stage.builder.join(Stream::compute, id);
}

void emit_parameter_gathers(Stage& stage) {
  std::vector<bool> gathered(stage.facts.size(), false);
  for (const std::vector<PreparedBlock>& chunk : stage.blocks) {
    for (const PreparedBlock& block : chunk) {
      for (int b : block.buckets) {
        const Bucket& bucket = stage.buckets()[b];
        if (bucket.ways == 1 || !bucket.whole_value || gathered[b]) continue;
        gathered[b] = true;
        emit_gather(stage, b, bucket.value, bucket.value,
                    stage.label(Pass::forward, stage.facts[b].gathered, -1, -1, block.chunk));
      }
    }
  }
}

Reduction emit_reduction(Stage& stage, int b, TensorId whole, int micro_batch, bool first,
                         bool last) {
  const Bucket bucket = stage.buckets()[b];
  const Stage::BucketFacts& facts = stage.facts[b];
  const Label label = stage.label(Pass::reduce, bucket.name, micro_batch);
  const DType main = main_dtype(stage.options.dtype);
  const bool in_dtype = stage.options.reduce_in_dtype && main != stage.options.dtype;
  Reduction reduction{.bucket = b, .first = first, .last = last, .micro_batch = micro_batch};
  emit_shared_head_sums(stage, b, whole, label);

  // Replicas of a group of owners sum what owners keep, later; without owners it is all one sum.
  const Group group =
      bucket.ways > 1 ? bucket.owners : stage.mesh.spanned(with(bucket.owners, kReplicas));
  const auto temporary = [&](std::int64_t elements, DType dtype) {
    return stage.builder.tensor(facts.reduced, elements, dtype, MemoryClass::bucket, -1,
                                micro_batch);
  };
  TensorId from = whole;
  if (stage.mesh.group_size(group) > 1) {
    if (in_dtype) {
      from = temporary(bucket.elements, stage.options.dtype);
      stage.builder.emit(Stream::compute, label, Compute{facts.cast_from_main}, {whole}, {from});
    }
    const TensorId to = bucket.whole_gradient
                            ? from
                            : temporary(bucket.slice(), in_dtype ? stage.options.dtype : main);
    const CollectiveKind kind =
        bucket.ways > 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    emit_sum(stage, label, {kind, ReduceOp::sum, group}, from, to);
    if (in_dtype) reduction.to_cast = to;
    if (!in_dtype && !bucket.whole_gradient) reduction.to_add = to;
  }
  return reduction;
}

void finish_reduction(Stage& stage, const Reduction& reduction) {
  const Bucket bucket = stage.buckets()[reduction.bucket];
  const Stage::BucketFacts& facts = stage.facts[reduction.bucket];
  const Label label = stage.label(Pass::reduce, bucket.name, reduction.micro_batch);
  TensorId to_add = reduction.to_add;
  if (reduction.to_cast != kNone) {
    TensorId to = bucket.gradient;
    if (!bucket.whole_gradient)
      to = to_add =
          stage.builder.tensor(facts.reduced, bucket.slice(), main_dtype(stage.options.dtype),
                               MemoryClass::bucket, -1, reduction.micro_batch);
    stage.builder.emit(Stream::compute, label, Compute{facts.cast_to_main}, {reduction.to_cast},
                       {to});
  }
  if (to_add != kNone) {
    if (reduction.first || mutated("reduced_slice_overwritten")) {
      stage.builder.emit(Stream::compute, label, Compute{facts.start_sum}, {to_add},
                         {bucket.gradient});
    } else {
      stage.builder.emit(Stream::compute, label, Compute{facts.add}, {to_add, bucket.gradient},
                         {bucket.gradient});
    }
  }
  if (!reduction.last) return;
  if (mutated("summed_over_context_twice"))
    emit_sum_of_slice(stage, reduction.bucket, group_of(Axis::cp), bucket.name);
  if (bucket.ways > 1) emit_sum_of_slice(stage, reduction.bucket, kReplicas, bucket.name);
  if (facts.partial && !mutated("partial_gradients_apart"))
    emit_sum_of_slice(stage, reduction.bucket, group_of(Axis::tp), bucket.name);
}

void emit_tied_sum(Stage& stage) {
  for (int b = 0; b < static_cast<int>(stage.facts.size()); ++b) {
    if (stage.facts[b].tied && !mutated("tied_sum_left_out"))
      emit_sum_of_slice(stage, b, kEnds, stage.sites.tied);
  }
}

}  // namespace mb
