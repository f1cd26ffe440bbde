// What one pipeline rank computes, while its Program is being built: its blocks with every name and
// operation interned, its parameters in flat buckets. The strategies in this folder each emit their
// part of the Program from it.
#pragma once

#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/plan/builder.h"
#include "parallel/schedule/receive_order.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/layers.h"

namespace mb {

// Where a tensor of a block comes from: it exists once, or once a micro-batch, or it passes between
// blocks, or it belongs to a parameter.
struct PreparedTensor {
  enum class Source : std::uint8_t {
    scalars,
    instance,
    tokens,
    labels,
    input,
    output,
    d_output,
    d_input,
    value,
    gradient,
    view
  };
  Source source;
  // instance: its place among the block's own; value, gradient: the parameter; view: its base.
  int index = -1;
  std::int64_t first = 0, elements = 0;  // of a view
};

struct InstanceTensor {
  std::uint16_t name;
  std::int64_t elements;
  DType dtype;
  MemoryClass memory;
};

// A step of a block with all that does not depend on the micro-batch worked out.
struct PreparedStep {
  Action action, accumulating;  // gradients overwritten, and added to
  Stream stream;
  std::uint16_t site;
  std::vector<int> reads, writes;  // of PreparedBlock::tensors
  std::vector<int> gradients;      // likewise; written after `writes`
  bool weight_half;
};

struct PreparedBlock {
  int layer = -1, chunk = 0;
  std::vector<PreparedTensor> tensors;
  std::vector<InstanceTensor> instances;
  std::vector<PreparedStep> forward, backward;
  std::vector<int> buckets;                          // that hold its parameters
  std::vector<int> forward_values, backward_values;  // buckets whose values each direction reads
  bool has_input = true, has_output = true;

  // By instance: what the backward reads of the forward's.
  std::vector<bool> wanted;
  // Recomputation: steps of `forward` that bring back the instances that are `dropped`, from those
  // that are `saved`.
  std::vector<int> replay;
  std::vector<bool> saved, dropped;
};

struct Batch {
  TensorId tokens = kNone, labels = kNone;
};

struct Stage {
  Stage(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
        const std::vector<int>& layout, int rank, Interner& interner);

  Label label(Pass pass, std::uint16_t site, int micro_batch = -1, int layer = -1,
              int chunk = 0) const {
    return {.pass = pass,
            .chunk = static_cast<std::int16_t>(chunk),
            .site = site,
            .stage = static_cast<std::int16_t>(rank),
            .layer = static_cast<std::int16_t>(layer),
            .micro_batch = micro_batch};
  }
  bool is_first(int chunk) const { return stage_of(placement, rank, chunk, ranks) == 0; }
  bool is_last(int chunk) const {
    return stage_of(placement, rank, chunk, ranks) == ranks * chunks - 1;
  }
  std::vector<Bucket>& buckets() { return builder.program().buckets; }
  bool recomputes(const PreparedBlock& block, int micro_batch) const {
    return !block.replay.empty() && options.recompute_micro_batches.has(micro_batch);
  }

  const ModelConfig& model;
  const Mesh& mesh;
  const StepOptions& options;
  int rank, ranks, chunks;
  Placement placement;
  BlockShape shape;
  std::int64_t hidden_elements;
  ProgramBuilder builder;
  std::vector<std::vector<PreparedBlock>> blocks;  // by chunk
  TensorId scalars = kNone, sums = kNone;          // sums: a view of the first kStepSums

  // By bucket.
  struct BucketFacts {
    int contributors = 0;  // blocks that write its gradient
    bool expert = false, partial = false, tied = false;
    bool early = false;           // complete with the input gradients of a split backward
    std::vector<int> parameters;  // in the order of their offsets
    std::uint16_t gathered = 0, gradient = 0, reduced = 0;  // names
    std::uint32_t norm = 0, update = 0, cast_to_main = 0, cast_from_main = 0, start_sum = 0,
                  add = 0;
  };
  std::vector<BucketFacts> facts;
  std::vector<int> place;                            // of a parameter among those of its bucket
  std::vector<std::uint16_t> names, gradient_names;  // by parameter
  std::vector<TensorId> values, gradients;  // by parameter: views that stay; kNone where they come
                                            // and go
  struct Sites {
    std::uint16_t batch, tokens, labels, hidden, d_hidden, activations, gradients, scalars, norm,
        optimizer, tied, sums, offload, loss_scale;
  } sites;
  struct Ops {
    std::uint32_t load[2][2];  // tokens, labels
    std::uint32_t start_step, update_loss_scale;
  } ops;
};

// buckets.cc: the parameters of all blocks in flat buckets, with every persistent tensor of theirs.
void lay_out_parameters(Stage& stage, const std::vector<std::vector<Block>>& blocks,
                        Interner& interner);
// recompute.cc: sets `wanted`, `saved`, `replay` and `dropped`.
void choose_recomputation(const Block& block, Recompute recompute, PreparedBlock& prepared);
// pipeline.cc: every slot of the schedule as computation, sends and receives.
void emit_schedule(Stage& stage, const std::vector<Slot>& slots,
                   const std::vector<Receive>& receives);
// data.cc: gathers one bucket's parameters where each owner has changed its slice.
void emit_gather(Stage& stage, int bucket, TensorId from, TensorId to, const Label& label);
// data.cc: parameters that the last step has changed, in the order of their first use.
void emit_parameter_gathers(Stage& stage);
// A sum of gradients under way, and what computation does with it once it has arrived.
struct Reduction {
  int bucket = 0;
  bool first = true, last = true;  // of the step
  int micro_batch = -1;
  TensorId to_cast = kNone;  // in the model's dtype
  TensorId to_add = kNone;   // a slice, into the bucket's gradient
  bool needs_finish() const { return to_cast != kNone || to_add != kNone; }
};
// data.cc: sums a bucket's gradient `whole` over its data ranks: of a micro-batch where ranks keep
// slices, else of the step.
Reduction emit_reduction(Stage& stage, int bucket, TensorId whole, int micro_batch, bool first,
                         bool last);
// data.cc: also, after the last one, sums over replicas and tensor ranks.
void finish_reduction(Stage& stage, const Reduction& reduction);
// data.cc: sum of a tied embedding's two gradients, on the first and the last stage.
void emit_tied_sum(Stage& stage);
// optimizer.cc: gradient norm, the scalars of the step summed over the world, the update.
void emit_optimizer(Stage& stage);

}  // namespace mb
