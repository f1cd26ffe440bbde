// Data parallelism: gradients summed over dp in buckets, each as soon as the last backward has
// completed it (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
#include "parallel/strategy/stage.h"

namespace mb {

void emit_bucket_reduction(Stage& stage, int block, int micro_batch) {
  if (stage.mesh.size(Axis::dp) == 1) return;
  for (const Bucket& bucket : stage.buckets) {
    if (bucket.block != block) continue;
    stage.builder.emit(Stream::dp, stage.label(Pass::reduce, bucket.site, micro_batch),
                       Collective{CollectiveKind::all_reduce, ReduceOp::sum, group_of(Axis::dp)},
                       {bucket.tensor}, {bucket.tensor});
  }
}

void emit_tied_reduction(Stage& stage) {
  if (!stage.model.tied || stage.count == 1 || !(stage.first() || stage.last())) return;
  const TensorId gradient = stage.find_parameter("embedding.weight")->gradient;
  stage.builder.emit(Stream::dp, stage.label(Pass::reduce, stage.sites.tied),
                     Collective{CollectiveKind::all_reduce, ReduceOp::sum, kEnds}, {gradient},
                     {gradient});
}

}  // namespace mb
