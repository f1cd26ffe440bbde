#include "bench/choose/step_parts.h"

#include <algorithm>
#include <cmath>

#include "parallel/strategy/layout.h"

namespace mb {
namespace {

Pipeline pipeline_of(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  Pipeline pipeline{.shape = pipeline_shape(mesh, options),
                    .placement = placement_of(options),
                    .split = splits_backward(options)};
  const std::vector<int> layers = stage_layers(model, mesh, options);
  const int stages = static_cast<int>(layers.size());
  for (int rank = 0; rank < pipeline.shape.ranks; ++rank) {
    RankLayout layout;
    for (int chunk = 0; chunk < pipeline.shape.chunks; ++chunk) {
      const int stage = stage_of(pipeline.placement, rank, chunk, pipeline.shape.ranks);
      layout.layers.push_back(layers[stage]);
      layout.all += layers[stage];
      if (stage == 0) layout.embedding = chunk;
      if (stage == stages - 1) layout.head = chunk;
    }
    if (rank > 0) {
      const RankLayout& before = pipeline.ranks.back();
      layout.as_before = layout.layers == before.layers && layout.embedding == before.embedding &&
                         layout.head == before.head;
    }
    pipeline.ranks.push_back(std::move(layout));
  }
  return pipeline;
}

// Schedules are few and their names long.
int number_of(const std::string& schedule) {
  const auto& all = schedules();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == schedule) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

void StepParts::set_mesh(const Mesh& mesh) {
  if (mesh_ && *mesh_ == mesh) return;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
    if (mesh_ && mesh_->size(axis) != mesh.size(axis)) block_plans_.clear();
  }
  mesh_ = mesh;
  links_ = std::make_unique<MeshLinks>(*mesh_, machine_);
  pipelines_here_.clear();
  blocks_here_.clear();
  data_here_.clear();
  hops_here_.clear();
  world_sum_s_ = links_->seconds(CollectiveKind::all_reduce, kWorld, kStepSums * sizeof(double)) /
                 stack_.comm_share;
}

const Pipeline& StepParts::pipeline(const StepOptions& o) {
  const Pipeline*& here = pipelines_here_[{number_of(o.schedule), o.chunks}];
  if (!here) {
    const std::array<std::int64_t, 3> key{number_of(o.schedule), o.chunks, mesh_->size(Axis::pp)};
    auto found = pipelines_.find(key);
    if (found == pipelines_.end())
      found = pipelines_.emplace(key, pipeline_of(model_, *mesh_, o)).first;
    here = &found->second;
  }
  return *here;
}

const BlockForm& StepParts::block(const StepOptions& o, bool split) {
  const std::array<std::int64_t, 8> choice{o.micro_batch,
                                           o.sequence_parallel,
                                           static_cast<int>(o.context),
                                           static_cast<int>(o.recompute),
                                           split,
                                           o.tensor_chunks,
                                           static_cast<int>(o.dtype),
                                           std::llround(1e6 * o.dropout)};
  const BlockForm*& here = blocks_here_[choice];
  if (here) return *here;
  std::array<std::int64_t, 23> key{};
  std::size_t at = std::copy(choice.begin(), choice.end(), key.begin()) - key.begin();
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
    const GroupSpread& spread = links_->spread(group_of(axis));
    for (const int part :
         {mesh_->size(axis), spread.nodes, spread.on_a_node, spread.groups_on_a_node})
      key[at++] = part;
    key[at++] = spread.crosses_leaves;
  }
  here = &shared(&SharedParts::blocks, key, [&] {
    std::unique_ptr<BlockPlan>& plan = block_plans_[choice];
    if (!plan)
      plan = std::make_unique<BlockPlan>(StepShape{model_, *mesh_, o}, split, machine_, stack_);
    return plan->on(*links_);
  });
  return *here;
}

double StepParts::layer_copies_s(const StepOptions& o) {
  const std::array<std::int64_t, 9> key{o.micro_batch,
                                        o.sequence_parallel,
                                        static_cast<int>(o.context),
                                        static_cast<int>(o.recompute),
                                        o.tensor_chunks,
                                        mesh_->size(Axis::tp),
                                        mesh_->size(Axis::cp),
                                        mesh_->size(Axis::ep),
                                        static_cast<int>(o.dtype)};
  return shared(&SharedParts::copies, key, [&] {
    return mb::layer_copies_s({model_, *mesh_, o}, machine_, stack_);
  });
}

const std::vector<const RankData*>& StepParts::data(const StepOptions& o, const Pipeline& p) {
  std::vector<const RankData*>& here = data_here_[{o.zero, number_of(o.schedule), o.chunks,
                                                   o.offload_optimizer + 2 * o.sequence_parallel}];
  if (!here.empty()) return here;
  for (int rank = 0; rank < p.shape.ranks; ++rank) {
    const RankLayout& layout = p.ranks[rank];
    std::vector<std::int64_t> key{o.zero,
                                  o.zero >= 2 && p.split,
                                  o.offload_optimizer,
                                  o.sequence_parallel,
                                  o.bucket_bytes,
                                  static_cast<int>(o.dtype),
                                  mesh_->size(Axis::tp),
                                  mesh_->size(Axis::ep),
                                  p.shape.ranks * p.shape.chunks > 1,
                                  layout.embedding,
                                  layout.head};
    key.insert(key.end(), layout.layers.begin(), layout.layers.end());
    for (const Group group : {kDataOwners, kExpertOwners, kReplicas, kEnds}) {
      const GroupSpread& spread = links_->spread(mesh_->spanned(group));
      key.insert(key.end(), {spread.ranks, spread.nodes, spread.on_a_node, spread.groups_on_a_node,
                             spread.crosses_leaves});
    }
    here.push_back(&shared(&SharedParts::data, key, [&] {
      return rank_data({model_, *mesh_, o}, rank, *links_, machine_, stack_);
    }));
  }
  return here;
}

const MeshLinks::Hops& StepParts::hops(std::int64_t bytes, int parts) {
  const auto [known, is_new] = hops_here_.try_emplace({bytes, parts});
  if (is_new) {
    known->second = links_->hops(bytes, parts);
    for (std::vector<double>* of : {&known->second.next, &known->second.before})
      for (double& seconds : *of) seconds /= stack_.comm_share;
  }
  return known->second;
}

const SlotOrder& StepParts::order(const Pipeline& p, const StepOptions& o, int micro_batches) {
  const std::array<std::int64_t, 5> key{number_of(o.schedule), p.shape.ranks, p.shape.chunks,
                                        o.group, micro_batches};
  auto found = orders_.find(key);
  if (found == orders_.end()) {
    StepOptions some = o;
    some.micro_batches = micro_batches;
    SlotOrder order{.slots = slots_of_step(*mesh_, some), .in_flight = {}};
    for (const std::vector<Slot>& slots : order.slots)
      order.in_flight.push_back(most_in_flight(slots));
    found = orders_.emplace(key, std::move(order)).first;
  }
  return found->second;
}

}  // namespace mb
