// A pipeline stage while its Program is being built: its blocks with every name and operation
// interned, its persistent tensors, its gradient buckets. The strategies in this folder each emit
// their part of the Program from it.
#pragma once

#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/plan/builder.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/layers.h"

namespace mb {

// Where a tensor of a block comes from: it exists once, or once a micro-batch, or it passes between
// blocks.
struct PreparedTensor {
  enum class Source : std::uint8_t {
    fixed,
    instance,
    tokens,
    labels,
    input,
    output,
    d_output,
    d_input
  };
  Source source;
  TensorId index = kNone;  // fixed: the tensor; instance: its place among the block's own tensors
};

struct InstanceTensor {
  std::uint16_t name;
  std::int64_t elements;
  DType dtype;
  MemoryClass memory;
};

// A step of a block with all that does not depend on the micro-batch worked out.
struct PreparedStep {
  Action action;
  Stream stream;
  std::uint16_t site;
  std::vector<int> reads, writes;  // of PreparedBlock::tensors
};

struct PreparedBlock {
  int layer = -1;
  std::vector<PreparedTensor> tensors;
  std::vector<InstanceTensor> instances;
  std::vector<PreparedStep> forward;
  std::vector<PreparedStep> backward_first, backward_next;  // gradients overwritten, and added to
};

// Gradients that are reduced in one call: consecutive parameters, from the last of the stage to the
// first.
struct Bucket {
  TensorId tensor = kNone;
  std::uint16_t site = 0;
  int block = 0;  // after whose backward all of it is complete
};

struct Stage {
  Stage(const ModelConfig& model, const Mesh& mesh, const StepOptions& options, int index,
        Interner& interner);

  bool first() const { return index == 0; }
  bool last() const { return index == count - 1; }
  std::int64_t hidden_elements() const {
    return options.micro_batch * model.sequence * model.hidden;
  }
  Label label(Pass pass, std::uint16_t site, int micro_batch = -1, int layer = -1) const {
    return {.pass = pass,
            .site = site,
            .stage = static_cast<std::int16_t>(index),
            .layer = static_cast<std::int16_t>(layer),
            .micro_batch = micro_batch};
  }
  ParameterTensors* find_parameter(std::string_view name);

  const ModelConfig& model;
  const Mesh& mesh;
  const StepOptions& options;
  int index, count;
  ProgramBuilder builder;
  std::vector<PreparedBlock> blocks;
  std::vector<Bucket> buckets;
  TensorId scalars = kNone, step_sums = kNone;  // the latter is the head of the former
  struct Sites {
    std::uint16_t batch, tokens, labels, hidden, d_hidden, activations, gradients, scalars, sums,
        norm, optimizer, tied;
  } sites;
  struct Ops {
    std::uint32_t load, start_step;
    std::vector<std::uint32_t> sum_squares, update;  // by parameter
  } ops;
};

// pipeline.cc: every slot of the schedule as computation, sends and receives.
void emit_schedule(Stage& stage);
// data.cc: all-reduce over dp of the buckets that the last backward of `block` has completed.
void emit_bucket_reduction(Stage& stage, int block, int micro_batch);
// data.cc: sum of a tied embedding's two gradients, on the first and the last stage.
void emit_tied_reduction(Stage& stage);
// optimizer.cc: gradient norm, the scalars of the step summed over the world, the update.
void emit_optimizer(Stage& stage);

}  // namespace mb
