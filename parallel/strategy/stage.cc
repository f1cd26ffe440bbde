#include "parallel/strategy/stage.h"

#include <map>
#include <utility>

#include "workloads/base/error.h"

namespace mb {
namespace {

struct StageBlocks {
  std::vector<Block> first, next;  // a block in both forms of its backward
  std::vector<int> layers;
};

StageBlocks make_blocks(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                        int stage, int stages) {
  const BlockShape shape{options.micro_batch, mesh.size(Axis::tp), options.dtype};
  const int layers = static_cast<int>(model.layers) / stages;
  StageBlocks blocks;
  const auto add = [&](int layer, auto make) {
    blocks.first.push_back(make(false));
    blocks.next.push_back(make(true));
    blocks.layers.push_back(layer);
  };
  if (stage == 0) {
    add(-1, [&](bool accumulate) {
      return embedding_block(model, shape, accumulate, model.tied && stages == 1);
    });
  }
  for (int layer = stage * layers; layer < (stage + 1) * layers; ++layer) {
    add(layer, [&](bool accumulate) { return layer_block(model, shape, layer, accumulate); });
  }
  if (stage == stages - 1)
    add(-1, [&](bool accumulate) { return head_block(model, shape, accumulate); });
  return blocks;
}

Op update_op(const ParameterSpec& spec, const StepOptions& options) {
  const OptimizerOptions& o = options.optimizer;
  if (o.kind == Optimizer::sgd)
    return {Sgd{spec.local_elements(), o.learning_rate, o.clip}, options.dtype};
  return {AdamW{spec.local_elements(), o.learning_rate, o.beta1, o.beta2, o.epsilon,
                spec.decay ? o.weight_decay : 0.0, o.clip},
          options.dtype};
}

// Declares the parameters of all blocks, each name once, with the block that owns it: the first.
std::vector<int> declare_parameters(Stage& stage, const StageBlocks& blocks, Interner& interner) {
  Program& program = stage.builder.program();
  std::vector<int> owner;
  for (std::size_t b = 0; b < blocks.first.size(); ++b) {
    for (const ParameterSpec& spec : blocks.first[b].parameters) {
      if (stage.find_parameter(spec.name)) continue;
      const std::uint16_t name = interner.name(spec.name);
      ParameterTensors tensors{.spec = spec};
      tensors.value = stage.builder.persistent(name, spec.local_elements(), stage.options.dtype,
                                               MemoryClass::parameter);
      if (stage.options.optimizer.kind == Optimizer::adamw) {
        tensors.m = stage.builder.persistent(interner.name(spec.name + ".m"), spec.local_elements(),
                                             stage.options.dtype, MemoryClass::moment);
        tensors.v = stage.builder.persistent(interner.name(spec.name + ".v"), spec.local_elements(),
                                             stage.options.dtype, MemoryClass::moment);
      }
      stage.ops.sum_squares.push_back(interner.op(
          {SumSquares{spec.local_elements(), spec.split == Split::none}, stage.options.dtype}));
      stage.ops.update.push_back(interner.op(update_op(spec, stage.options)));
      program.parameters.push_back(std::move(tensors));
      owner.push_back(static_cast<int>(b));
    }
  }
  return owner;
}

// Cuts the gradients into buckets of at most bucket_bytes, a larger gradient alone in its own.
void declare_gradients(Stage& stage, const std::vector<int>& owner, Interner& interner) {
  Program& program = stage.builder.program();
  const std::int64_t limit = stage.options.bucket_bytes / size_of(stage.options.dtype);
  int end = static_cast<int>(program.parameters.size());
  while (end > 0) {
    int begin = end - 1;
    std::int64_t elements = program.parameters[begin].spec.local_elements();
    while (begin > 0 && elements + program.parameters[begin - 1].spec.local_elements() <= limit) {
      elements += program.parameters[--begin].spec.local_elements();
    }
    const std::uint16_t name = interner.name(cat("bucket ", stage.buckets.size()));
    const TensorId bucket =
        stage.builder.persistent(name, elements, stage.options.dtype, MemoryClass::gradient);
    std::int64_t offset = 0;
    for (int p = end - 1; p >= begin; --p) {
      ParameterTensors& parameter = program.parameters[p];
      const std::int64_t own = parameter.spec.local_elements();
      parameter.gradient = stage.builder.view(bucket, interner.name("d." + parameter.spec.name),
                                              offset, own, MemoryClass::gradient);
      offset += own;
    }
    stage.buckets.push_back({bucket, name, owner[begin]});
    end = begin;
  }
}

PreparedBlock prepare(Stage& stage, const Block& first, const Block& next, int layer,
                      Interner& interner) {
  PreparedBlock prepared{.layer = layer};
  for (const BlockTensor& tensor : first.tensors) {
    using Source = PreparedTensor::Source;
    PreparedTensor from{Source::fixed, kNone};
    switch (tensor.role) {
      case Role::parameter:
        from.index = stage.find_parameter(first.parameters[tensor.parameter].name)->value;
        break;
      case Role::gradient:
        from.index = stage.find_parameter(first.parameters[tensor.parameter].name)->gradient;
        break;
      case Role::scalars:
        from.index = stage.scalars;
        break;
      case Role::tokens:
        from.source = Source::tokens;
        break;
      case Role::labels:
        from.source = Source::labels;
        break;
      case Role::input:
        from.source = Source::input;
        break;
      case Role::output:
        from.source = Source::output;
        break;
      case Role::d_output:
        from.source = Source::d_output;
        break;
      case Role::d_input:
        from.source = Source::d_input;
        break;
      case Role::activation:
      case Role::temporary:
        from = {Source::instance, static_cast<TensorId>(prepared.instances.size())};
        prepared.instances.push_back(
            {interner.name(tensor.name), tensor.elements, tensor.dtype,
             tensor.role == Role::activation ? MemoryClass::activation : MemoryClass::workspace});
    }
    prepared.tensors.push_back(from);
  }
  const auto steps = [&](const std::vector<BlockStep>& list) {
    std::vector<PreparedStep> result;
    for (const BlockStep& step : list) {
      const auto* exchange = std::get_if<Exchange>(&step.what);
      const Action action =
          exchange ? Action(Collective{CollectiveKind::all_reduce,
                                       exchange->maximum ? ReduceOp::max : ReduceOp::sum,
                                       group_of(Axis::tp)})
                   : Action(Compute{interner.op(std::get<Op>(step.what))});
      result.push_back({action, exchange ? Stream::tp : Stream::compute, interner.name(step.site),
                        step.reads, step.writes});
    }
    return result;
  };
  prepared.forward = steps(first.forward);
  prepared.backward_first = steps(first.backward);
  prepared.backward_next = steps(next.backward);
  return prepared;
}

}  // namespace

ParameterTensors* Stage::find_parameter(std::string_view name) {
  for (ParameterTensors& parameter : builder.program().parameters) {
    if (parameter.spec.name == name) return &parameter;
  }
  return nullptr;
}

Stage::Stage(const ModelConfig& model, const Mesh& mesh, const StepOptions& options, int index,
             Interner& interner)
    : model(model),
      mesh(mesh),
      options(options),
      index(index),
      count(mesh.size(Axis::pp)),
      builder(index) {
  const auto name = [&](const char* text) { return interner.name(text); };
  sites = {name("batch"),    name("tokens"),      name("labels"),    name("hidden"),
           name("d.hidden"), name("activations"), name("gradients"), name("scalars"),
           name("sums"),     name("norm"),        name("optimizer"), name("tied embedding")};
  ops.load =
      interner.op({LoadBatch{options.micro_batch, model.sequence, first(), last()}, options.dtype});
  ops.start_step = interner.op({StartStep{1.0}, options.dtype});

  const StageBlocks made = make_blocks(model, mesh, options, index, count);
  scalars = builder.persistent(sites.scalars, kScalars, DType::fp64, MemoryClass::workspace);
  step_sums = builder.view(scalars, sites.sums, 0, kStepSums, MemoryClass::workspace);
  builder.program().scalars = scalars;
  const std::vector<int> owner = declare_parameters(*this, made, interner);
  declare_gradients(*this, owner, interner);
  for (std::size_t b = 0; b < made.first.size(); ++b) {
    blocks.push_back(prepare(*this, made.first[b], made.next[b], made.layers[b], interner));
  }
}

}  // namespace mb
