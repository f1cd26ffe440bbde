#include "parallel/strategy/stage.h"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/strategy/layout.h"
#include "workloads/base/error.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

using Source = PreparedTensor::Source;

PreparedTensor prepare_tensor(const Block& block, const BlockTensor& tensor,
                              const std::map<std::string, int>& parameters, Interner& interner,
                              std::vector<InstanceTensor>& instances) {
  const auto parameter = [&] { return parameters.at(block.parameters[tensor.parameter].name); };
  switch (tensor.role) {
    case Role::parameter:
      return {Source::value, parameter()};
    case Role::gradient:
      return {Source::gradient, parameter()};
    case Role::scalars:
      return {Source::scalars};
    case Role::tokens:
      return {Source::tokens};
    case Role::labels:
      return {Source::labels};
    case Role::input:
      return {Source::input};
    case Role::output:
      return {Source::output};
    case Role::d_output:
      return {Source::d_output};
    case Role::d_input:
      return {Source::d_input};
    case Role::view:
      return {Source::view, tensor.base, tensor.first, tensor.elements};
    case Role::activation:
    case Role::temporary:
      break;
  }
  instances.push_back(
      {interner.name(tensor.name), tensor.elements, tensor.dtype,
       tensor.role == Role::activation ? MemoryClass::activation : MemoryClass::workspace});
  return {Source::instance, static_cast<int>(instances.size()) - 1};
}

Collective collective_of(const Exchange& exchange) {
  using Kind = Exchange::Kind;
  constexpr std::pair<Kind, CollectiveKind> kinds[] = {
      {Kind::sum, CollectiveKind::all_reduce},
      {Kind::maximum, CollectiveKind::all_reduce},
      {Kind::gather, CollectiveKind::all_gather},
      {Kind::scatter, CollectiveKind::reduce_scatter},
      {Kind::shift, CollectiveKind::shift},
      {Kind::all_to_all, CollectiveKind::all_to_all},
      {Kind::all_to_all_v, CollectiveKind::all_to_all_v}};
  constexpr Axis axes[] = {Axis::tp, Axis::cp, Axis::ep};  // by Exchange::Over
  return {.kind = kinds[static_cast<int>(exchange.kind)].second,
          .op = exchange.kind == Kind::maximum ? ReduceOp::max : ReduceOp::sum,
          .group = group_of(axes[static_cast<int>(exchange.over)]),
          .unit = static_cast<std::int32_t>(exchange.unit)};
}

PreparedStep prepare_step(const BlockStep& step, Interner& interner) {
  PreparedStep prepared{.stream = Stream::compute,
                        .site = interner.name(step.site),
                        .reads = step.reads,
                        .writes = step.writes,
                        .gradients = step.gradients,
                        .weight_half = step.weight_half};
  if (const auto* exchange = std::get_if<Exchange>(&step.what)) {
    constexpr Stream streams[] = {Stream::tp, Stream::cp, Stream::ep};  // by Exchange::Over
    prepared.action = prepared.accumulating = collective_of(*exchange);
    prepared.stream = streams[static_cast<int>(exchange->over)];
    return prepared;
  }
  const Op& op = std::get<Op>(step.what);
  prepared.action = prepared.accumulating = Compute{interner.op(op)};
  if (!step.gradients.empty()) prepared.accumulating = Compute{interner.op(accumulating(op))};
  return prepared;
}

PreparedBlock prepare(const Block& block, int layer, int chunk, Recompute recompute,
                      const std::vector<Parameter>& all,
                      const std::map<std::string, int>& parameters, Interner& interner) {
  PreparedBlock prepared{.layer = layer, .chunk = chunk};
  for (const BlockTensor& tensor : block.tensors)
    prepared.tensors.push_back(
        prepare_tensor(block, tensor, parameters, interner, prepared.instances));
  for (const BlockStep& step : block.forward)
    prepared.forward.push_back(prepare_step(step, interner));
  for (const BlockStep& step : block.backward)
    prepared.backward.push_back(prepare_step(step, interner));
  for (const ParameterSpec& spec : block.parameters) {
    const int bucket = all[parameters.at(spec.name)].bucket;
    if (std::find(prepared.buckets.begin(), prepared.buckets.end(), bucket) ==
        prepared.buckets.end())
      prepared.buckets.push_back(bucket);
  }
  std::sort(prepared.buckets.begin(), prepared.buckets.end());  // as the backward finishes them
  choose_recomputation(block, recompute, prepared);
  const auto add_values = [&](const PreparedStep& step, std::vector<int>& buckets) {
    for (int t : step.reads) {
      if (prepared.tensors[t].source != Source::value) continue;
      const int bucket = all[prepared.tensors[t].index].bucket;
      if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end())
        buckets.push_back(bucket);
    }
  };
  for (const PreparedStep& step : prepared.forward) add_values(step, prepared.forward_values);
  for (const PreparedStep& step : prepared.backward) add_values(step, prepared.backward_values);
  for (int s : prepared.replay) add_values(prepared.forward[s], prepared.backward_values);
  return prepared;
}

}  // namespace

Stage::Stage(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
             const std::vector<int>& layout, int rank, Interner& interner)
    : model(model),
      mesh(mesh),
      options(options),
      rank(rank),
      ranks(mesh.size(Axis::pp)),
      chunks(static_cast<int>(layout.size()) / ranks),
      placement(placement_of(options)),
      shape(block_shape(mesh, options)),
      hidden_elements(mb::hidden_elements(model, shape)),
      builder(rank) {
  const auto name = [&](const char* text) { return interner.name(text); };
  sites = {.batch = name("batch"),
           .tokens = name("tokens"),
           .labels = name("labels"),
           .hidden = name("hidden"),
           .d_hidden = name("d.hidden"),
           .activations = name("activations"),
           .gradients = name("gradients"),
           .scalars = name("scalars"),
           .norm = name("norm"),
           .optimizer = name("optimizer"),
           .tied = name("tied embedding"),
           .sums = name("sums"),
           .offload = name("offload"),
           .loss_scale = name("loss scale")};
  for (const bool tokens : {false, true}) {
    for (const bool labels : {false, true})
      ops.load[tokens][labels] = interner.op(
          {LoadBatch{options.micro_batch, model.sequence, tokens, labels, shape.split()},
           options.dtype});
  }
  ops.start_step = interner.op({StartStep{options.loss_scale}, DType::fp64});
  ops.update_loss_scale = interner.op({UpdateLossScale{}, DType::fp64});
  scalars = builder.persistent(sites.scalars, kScalars, DType::fp64, MemoryClass::workspace);
  sums = builder.view(scalars, sites.sums, 0, mutated("norm_of_a_rank") ? 2 : kStepSums,
                      MemoryClass::workspace);
  builder.program().scalars = scalars;

  std::vector<std::vector<Block>> made(chunks);
  std::vector<std::vector<int>> layers(chunks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const auto add = [&](int layer, Block block) {
      made[chunk].push_back(std::move(block));
      layers[chunk].push_back(layer);
    };
    const int stage = stage_of(placement, rank, chunk, ranks);
    int layer = 0;
    for (int before = 0; before < stage; ++before) layer += layout[before];
    if (is_first(chunk)) add(-1, embedding_block(model, shape));
    for (const int end = layer + layout[stage]; layer < end; ++layer)
      add(layer, layer_block(model, shape, layer));
    if (is_last(chunk)) add(-1, head_block(model, shape));
  }
  lay_out_parameters(*this, made, interner);

  const std::vector<Parameter>& parameters = builder.program().parameters;
  std::map<std::string, int> by_name;
  for (int p = 0; p < static_cast<int>(parameters.size()); ++p)
    by_name.emplace(parameters[p].spec.name, p);
  blocks.resize(chunks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (std::size_t b = 0; b < made[chunk].size(); ++b) {
      const int layer = layers[chunk][b];
      const bool recomputed = layer >= 0 && options.recompute_layers.has(layer);
      blocks[chunk].push_back(prepare(made[chunk][b], layer, chunk,
                                      recomputed ? options.recompute : Recompute::none, parameters,
                                      by_name, interner));
      for (int bucket : blocks[chunk].back().buckets) ++facts[bucket].contributors;
    }
    if (is_first(chunk)) blocks[chunk].front().has_input = false;
    if (is_last(chunk)) blocks[chunk].back().has_output = false;
  }
}

}  // namespace mb
