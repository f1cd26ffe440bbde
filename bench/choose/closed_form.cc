#include "bench/choose/closed_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/choose/block_form.h"
#include "bench/choose/mesh_links.h"
#include "bench/choose/rank_data.h"
#include "bench/choose/slot_walk.h"
#include "parallel/exec/predict.h"
#include "parallel/schedule/closed_form.h"
#include "parallel/strategy/layout.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

template <std::size_t n>
struct KeyHash {
  std::size_t operator()(const std::array<std::int64_t, n>& key) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::int64_t part : key)
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    return hash;
  }
};
template <std::size_t n, class Value>
using Cache = std::unordered_map<std::array<std::int64_t, n>, Value, KeyHash<n>>;

// Which runs of layers a pipeline's ranks hold.
struct RankLayout {
  std::vector<int> layers;  // by chunk
  int all = 0;
  int embedding = -1, head = -1;  // the chunk that has it
};
struct Pipeline {
  PipelineShape shape;
  Placement placement = Placement::linear;
  bool split = false;
  std::vector<RankLayout> ranks;
};

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

struct ClosedForm::Parts {
  Parts(const ModelConfig& model, const Machine& machine, const Stack& stack)
      : model(model), machine(machine), stack(stack) {}

  const ModelConfig model;
  const Machine machine;
  const Stack stack;

  // Of the mesh at hand.
  std::optional<Mesh> mesh;
  std::unique_ptr<MeshLinks> links;
  Cache<2, const Pipeline*> pipelines_here;
  Cache<9, const BlockForm*> blocks_here;
  Cache<4, std::vector<const RankData*>> data_here;
  std::map<std::pair<std::int64_t, int>, MeshLinks::Hops> hops_here;  // by bytes and parts
  double world_sum_s = 0;

  // For all meshes.
  Cache<3, Pipeline> pipelines;
  Cache<27, BlockForm> blocks;
  std::map<std::vector<std::int64_t>, RankData> data;
  struct Order {
    std::vector<std::vector<Slot>> slots;
    std::vector<std::vector<InFlight>> in_flight;
  };
  Cache<5, Order> orders;

  void set_mesh(const Mesh& to) {
    if (mesh && *mesh == to) return;
    mesh = to;
    links = std::make_unique<MeshLinks>(*mesh, machine);
    pipelines_here.clear();
    blocks_here.clear();
    data_here.clear();
    hops_here.clear();
    world_sum_s = links->seconds(CollectiveKind::all_reduce, kWorld, kStepSums * sizeof(double)) /
                  stack.comm_share;
  }

  const Pipeline& pipeline(const StepOptions& o) {
    const Pipeline*& here = pipelines_here[{number_of(o.schedule), o.chunks}];
    if (!here) {
      const std::array<std::int64_t, 3> key{number_of(o.schedule), o.chunks, mesh->size(Axis::pp)};
      auto found = pipelines.find(key);
      if (found == pipelines.end())
        found = pipelines.emplace(key, pipeline_of(model, *mesh, o)).first;
      here = &found->second;
    }
    return *here;
  }

  const BlockForm& block(const StepOptions& o, bool split) {
    const BlockForm*& here =
        blocks_here[{o.micro_batch, o.sequence_parallel, static_cast<int>(o.context),
                     static_cast<int>(o.recompute), split, o.tensor_chunks, o.offload_activations,
                     static_cast<int>(o.dtype), std::llround(1e6 * o.dropout)}];
    if (here) return *here;
    std::array<std::int64_t, 27> key{o.micro_batch,
                                     o.sequence_parallel,
                                     static_cast<int>(o.context),
                                     static_cast<int>(o.recompute),
                                     split,
                                     o.tensor_chunks,
                                     o.offload_activations,
                                     static_cast<int>(o.dtype),
                                     std::llround(1e6 * o.dropout)};
    std::size_t at = 9;
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
      const GroupSpread& spread = links->spread(group_of(axis));
      for (const int part :
           {mesh->size(axis), spread.nodes, spread.on_a_node, spread.groups_on_a_node})
        key[at++] = part;
      key[at++] = spread.crosses_leaves;
    }
    auto found = blocks.find(key);
    if (found == blocks.end())
      found =
          blocks.emplace(key, block_form({model, *mesh, o}, split, *links, machine, stack)).first;
    return *(here = &found->second);
  }

  const std::vector<const RankData*>& rank_data_of(const StepOptions& o, const Pipeline& p) {
    std::vector<const RankData*>& here = data_here[{o.zero, number_of(o.schedule), o.chunks,
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
                                    mesh->size(Axis::tp),
                                    mesh->size(Axis::ep),
                                    p.shape.ranks * p.shape.chunks > 1,
                                    layout.embedding,
                                    layout.head};
      key.insert(key.end(), layout.layers.begin(), layout.layers.end());
      for (const Group group : {kDataOwners, kExpertOwners, kReplicas, kEnds}) {
        const GroupSpread& spread = links->spread(mesh->spanned(group));
        key.insert(key.end(), {spread.ranks, spread.nodes, spread.on_a_node,
                               spread.groups_on_a_node, spread.crosses_leaves});
      }
      auto found = data.find(key);
      if (found == data.end())
        found = data.emplace(key, rank_data({model, *mesh, o}, rank, *links, machine, stack)).first;
      here.push_back(&found->second);
    }
    return here;
  }

  // As the stack has them: whole, or in parts of tensor ranks that gather them (see cost.cc).
  const MeshLinks::Hops& hops(std::int64_t bytes, int parts) {
    const auto [known, is_new] = hops_here.try_emplace({bytes, parts});
    if (is_new) {
      known->second = links->hops(bytes / parts);
      const double gather_s =
          parts == 1 ? 0 : links->seconds(CollectiveKind::all_gather, group_of(Axis::tp), bytes);
      for (std::vector<double>* of : {&known->second.next, &known->second.before})
        for (double& seconds : *of) seconds = (seconds + gather_s) / stack.comm_share;
    }
    return known->second;
  }

  const Order& order(const Pipeline& p, const StepOptions& o, int micro_batches) {
    const std::array<std::int64_t, 5> key{number_of(o.schedule), p.shape.ranks, p.shape.chunks,
                                          o.group, micro_batches};
    auto found = orders.find(key);
    if (found == orders.end()) {
      StepOptions some = o;
      some.micro_batches = micro_batches;
      Order order{.slots = slots_of_step(*mesh, some)};
      for (const std::vector<Slot>& slots : order.slots)
        order.in_flight.push_back(most_in_flight(slots));
      found = orders.emplace(key, std::move(order)).first;
    }
    return found->second;
  }
};

namespace {

using Order = std::vector<std::vector<Slot>>;

// One case, all of whose parts are known.
struct Step {
  const Mesh& mesh;
  const StepOptions& options;
  const Pipeline& pipeline;
  const BlockForm& block;
  const std::vector<const RankData*>& data;
  const MeshLinks::Hops* hops;  // of more ranks than one
  double world_sum_s;

  // ZeRO-2 and 3 hold a layer up until what travels beside it is there.
  static double beside(double own, double travels, bool overlaps) {
    return overlaps ? std::max(own, travels) : own + travels;
  }
  PassSeconds layer(const RankData& d) const {
    PassSeconds s = block.layer;
    if (options.zero < 2) return s;
    const double gather = options.zero == 3 && options.reshard ? d.layer_gather_s : 0;
    const bool ahead = options.overlap.gather, summed = options.overlap.reduce;
    s.forward = beside(s.forward, gather, ahead);
    s.input_grad = beside(s.input_grad, gather, ahead);
    s.weight_grad = beside(s.weight_grad, d.layer_reduce_s, summed);
    s.backward = ahead && summed
                     ? std::max(s.backward, gather + d.layer_reduce_s)
                     : beside(beside(s.backward, gather, ahead), d.layer_reduce_s, summed);
    return s;
  }
  PassSeconds chunk(int rank, int chunk, const PassSeconds& layer) const {
    const RankLayout& layout = pipeline.ranks[rank];
    PassSeconds s = static_cast<double>(layout.layers[chunk]) * layer;
    if (layout.embedding == chunk) s += block.embedding;
    if (layout.head == chunk) s += block.head;
    if (options.zero >= 2) travel(s, *data[rank], layout, chunk);
    return s;
  }
  PassSeconds rank(int rank) const {
    const PassSeconds one = layer(*data[rank]);
    PassSeconds s;
    for (int c = 0; c < pipeline.shape.chunks; ++c) s += chunk(rank, c, one);
    return s;
  }
  // A chunk takes at least what its gathers and sums take one after the other; adding the sums of a
  // micro-batch to those before comes on top.
  void travel(PassSeconds& s, const RankData& d, const RankLayout& layout, int chunk) const {
    const int layers = layout.layers[chunk];
    const int ends = (layout.embedding >= 0) + (layout.head >= 0);
    const double share =
        ends == 0 ? 0 : 1.0 * ((layout.embedding == chunk) + (layout.head == chunk)) / ends;
    const double gather = options.zero == 3 && options.reshard
                              ? layers * d.layer_gather_s + share * d.ends_gather_s
                              : 0;
    const double reduce = layers * d.layer_reduce_s + share * d.ends_reduce_s;
    s.forward = std::max(s.forward, gather);
    s.input_grad = std::max(s.input_grad, gather);
    s.weight_grad = std::max(s.weight_grad, reduce);
    s.backward = std::max(s.backward, gather + reduce);
    const double add = d.add_s * layers / std::max(1, layout.all);
    s.backward += add;
    s.weight_grad += add;
  }

  bool gathers_once() const {
    return options.zero == 1 || options.zero == 2 || (options.zero == 3 && !options.reshard);
  }
  // What a rank's copies of offloaded activations take, one after the other.
  double copies_s(int rank) const {
    return options.micro_batches * pipeline.ranks[rank].all * block.layer_copies_s;
  }
  // Of a micro-batch on a rank, at least.
  double work_s(const PassSeconds& s) const {
    if (!pipeline.split) return s.forward + s.backward;
    const double halves = s.input_grad + s.weight_grad;
    return s.forward + (options.schedule == "dualpipe-v" ? std::min(halves, s.backward) : halves);
  }
  // What the first forward of a rank waits for, beside its own layers.
  double start_s(int rank, double forward) const {
    const RankData& d = *data[rank];
    if (!gathers_once()) return d.first_gather_s;
    const double one = forward / std::max(1, pipeline.ranks[rank].all);
    if (!options.overlap.gather) return options.zero == 3 ? d.gather_s : 0;
    return std::max(d.first_gather_s, d.gather_s + one - forward);
  }
  // From the end of a rank's last slot to the end of its sums of gradients.
  double exposed_s(int rank, const PassSeconds& own) const {
    const RankData& d = *data[rank];
    if (options.zero >= 2) return d.last_reduce_s + d.end_sums_s;
    if (!options.overlap.reduce) return d.reduce_s + d.end_sums_s;
    const RankLayout& layout = pipeline.ranks[rank];
    const double share = 1.0 * (layout.all - 1) / std::max(1, layout.all);
    // Halves of the last chunk's backward follow each other, those of others have time.
    const int chunks = pipeline.shape.chunks;
    const double window =
        share *
        (pipeline.split ? own.weight_grad + own.input_grad * (chunks - 1) / chunks : own.backward);
    return std::max(d.last_reduce_s, d.reduce_s - window) + d.end_sums_s;
  }
  double norm_s(int rank) const { return data[rank]->norm_s; }
  double update_s(int rank) const {
    const RankData& d = *data[rank];
    const bool after = !options.overlap.gather && options.zero > 0 && options.zero < 3;
    return d.update_s + (after ? d.gather_s : 0);
  }

  // From when each rank has ended its slots.
  template <class EndOf>
  double finish(EndOf&& end_of) const {
    double summed = 0, update = 0;
    for (int r = 0; r < pipeline.shape.ranks; ++r) {
      summed = std::max(summed, end_of(r) + norm_s(r));
      update = std::max(update, update_s(r));
    }
    return summed + world_sum_s + update;
  }

  double formula_s() const;
  double walked_s(const Order& slots) const;
  double memory_bytes(const std::vector<std::vector<InFlight>>& in_flight, const Machine& machine,
                      const Stack& stack) const;
};

// 1F1B: a micro-batch through all ranks, and a round of the slowest cycle for each other one. Ranks
// k to l of a cycle have l - k + 1 micro-batches on their way, and the hops between them both ways.
double one_f_one_b_s(double sum, double most, int ranks, int micro_batches, double hops_s) {
  const double cycle = std::max(most, (sum + hops_s) / ranks);
  const double settled = std::max(0, micro_batches - ranks);
  return sum + hops_s + (micro_batches - 1 - settled) * most + settled * cycle;
}

// Of all other schedules: their closed form for equal ranks. Zero-bubble V's is for F = I = W.
double idle_s(const std::string& schedule, const PipelineShape& shape, const PassSeconds& mean,
              bool split) {
  if (schedule == "zb-v") {
    const double each = (mean.forward + mean.input_grad + mean.weight_grad) / 3;
    return idle_closed_form(schedule, shape, each, each, each).value_or(0);
  }
  return idle_closed_form(schedule, shape, mean.forward, split ? mean.input_grad : mean.backward,
                          mean.weight_grad)
      .value_or(0);
}

double Step::formula_s() const {
  const int ranks = pipeline.shape.ranks, m = options.micro_batches;
  PassSeconds sum;
  double all = 0, most = 0, start = 0, exposed = 0;
  for (int r = 0; r < ranks; ++r) {
    const PassSeconds own = rank(r);
    sum += own;
    all += work_s(own);
    most = std::max(most, work_s(own));
    // Ranks behind the first have ended a backward earlier.
    exposed = std::max(exposed, exposed_s(r, own) - (r == 0 ? 0 : own.backward));
    if (r == 0) start = start_s(r, own.forward);
  }
  double hops_s = 0;  // from the first rank to the last and back
  for (int r = 0; r + 1 < ranks; ++r) hops_s += hops->next[r] + hops->before[r + 1];
  double work = m * most;
  if (ranks > 1 && options.schedule == "1f1b") {
    work = one_f_one_b_s(all, most, ranks, m, hops_s);
  } else if (ranks > 1) {
    PipelineShape shape = pipeline.shape;
    shape.micro_batches = m;
    work += idle_s(options.schedule, shape, 1.0 / ranks * sum, pipeline.split) + hops_s;
  }
  if (!options.overlap.sends && ranks > 1) work += m * hops_s / (ranks - 1);
  for (int r = 0; r < ranks; ++r) work = std::max(work, copies_s(r));
  return finish([&](int) { return start + work + exposed; });
}

double Step::walked_s(const Order& slots) const {
  const int ranks = pipeline.shape.ranks;
  std::vector<RankSlots> work(ranks);
  std::vector<PassSeconds> own(ranks);
  for (int r = 0; r < ranks; ++r) {
    const PassSeconds one = layer(*data[r]);
    double before = 0;
    const RankData& d = *data[r];
    const int layers = std::max(1, pipeline.ranks[r].all);
    for (int c = 0; c < pipeline.shape.chunks; ++c) {
      work[r].chunks.push_back(chunk(r, c, one));
      own[r] += work[r].chunks.back();
      before += d.gather_s * pipeline.ranks[r].layers[c] / layers;
      const bool waits = gathers_once() && options.overlap.gather;
      work[r].first_forward_s.push_back(waits ? before + one.forward : 0);
    }
    work[r].first_forward_s[0] = std::max(work[r].first_forward_s[0],
                                          start_s(r, own[r].forward) + work[r].chunks[0].forward);
  }
  static const MeshLinks::Hops kNone{{0}, {0}};
  const std::vector<double> ends =
      slot_ends(slots, pipeline.placement, work, hops ? *hops : kNone, !options.overlap.sends);
  return finish([&](int r) { return std::max(ends[r], copies_s(r)) + exposed_s(r, own[r]); });
}

double Step::memory_bytes(const std::vector<std::vector<InFlight>>& in_flight,
                          const Machine& machine, const Stack& stack) const {
  double most = 0;
  const BlockBytes& b = block.bytes;
  for (int r = 0; r < pipeline.shape.ranks; ++r) {
    const RankLayout& layout = pipeline.ranks[r];
    const double chunks = pipeline.shape.chunks;
    const double layers = layout.all / chunks;  // of a chunk
    // With offload two layers are on the device, whatever is in flight.
    const double kept = options.offload_activations ? 0 : static_cast<double>(b.layer) * layers;
    const double pending = static_cast<double>(b.layer_pending) * layers;
    double activations = 0;
    for (const InFlight& f : in_flight[r])
      activations = std::max(activations, f.whole * kept + f.pending * pending);
    if (options.offload_activations) activations += 2.0 * static_cast<double>(b.layer);
    if (layout.embedding >= 0) activations += static_cast<double>(b.embedding);
    const auto work = layout.head >= 0 ? std::max(b.layer_work, b.head_work) : b.layer_work;
    const RankData& d = *data[r];
    activations += static_cast<double>(d.moving_bytes + work);
    // The update comes when activations are gone.
    most = std::max(most, static_cast<double>(d.state_bytes) +
                              std::max(activations, static_cast<double>(d.staged_bytes)));
  }
  constexpr double kSegment = 2 << 20;
  return most + static_cast<double>(fragmentation_of(std::llround(most), stack)) + kSegment +
         static_cast<double>(library_bytes(mesh, machine)) + 1e9 * machine.context_gb;
}

}  // namespace

EstimateError error_of(const Mesh& mesh, const StepOptions& options, const Stack& stack) {
  EstimateError error;
  const auto add = [&](double share) { error.form += share, error.walk += share; };
  const int ranks = mesh.size(Axis::pp), m = options.micro_batches;
  const bool unsettled = ranks > 1 && m < 4 * ranks;
  if (unsettled) add(0.07);
  if (ranks > 1 && m <= ranks) error.form += 0.16, error.walk += 0.07;
  if (stack.host_us > 0) add(0.06);
  if (options.zero >= 2) add(unsettled ? 0.33 : 0.13);
  if (options.offload_activations) add(0.10), error.memory += 0.30;
  if (options.offload_optimizer) add(0.15);
  if (options.zero == 3) error.memory += options.offload_optimizer ? 0.14 : 0.06;
  // What a stack keeps beside the Plan is not counted; these gradients take less.
  if (stack.deepspeed_gradients) error.memory += 0.35;
  return error;
}

ClosedForm::ClosedForm(const ModelConfig& model, const Machine& machine, const Stack& stack)
    : parts_(std::make_unique<Parts>(model, machine, stack)) {}
ClosedForm::~ClosedForm() = default;

namespace {

template <class Parts>
Step step_of(Parts& parts, const Mesh& mesh, const StepOptions& options) {
  parts.set_mesh(mesh);
  const Pipeline& pipeline = parts.pipeline(options);
  const BlockForm& block = parts.block(options, pipeline.split);
  const std::int64_t rows = options.micro_batch * parts.model.sequence / mesh.size(Axis::cp) /
                            (options.sequence_parallel ? mesh.size(Axis::tp) : 1);
  const bool scatters = parts.stack.scatter_sends && !options.sequence_parallel;
  const MeshLinks::Hops* hops =
      pipeline.shape.ranks == 1 ? nullptr
                                : &parts.hops(rows * parts.model.hidden * size_of(options.dtype),
                                              scatters ? mesh.size(Axis::tp) : 1);
  return {*parts.mesh, options,          pipeline, block, parts.rank_data_of(options, pipeline),
          hops,        parts.world_sum_s};
}

}  // namespace

Estimate ClosedForm::estimate(const Mesh& mesh, const StepOptions& options) {
  const Step step = step_of(*parts_, mesh, options);
  const int walked = rounds_of(mesh, options).walked;
  return {step.formula_s(),
          step.memory_bytes(parts_->order(step.pipeline, options, walked).in_flight,
                            parts_->machine, parts_->stack)};
}

double ClosedForm::walked_s(const Mesh& mesh, const StepOptions& options) {
  const Step step = step_of(*parts_, mesh, options);
  const Rounds rounds = rounds_of(mesh, options);
  const double all = step.walked_s(parts_->order(step.pipeline, options, rounds.walked).slots);
  if (rounds.walked == options.micro_batches) return all;
  const int fewer = rounds.walked - rounds.round;
  const double before = step.walked_s(parts_->order(step.pipeline, options, fewer).slots);
  return all + (all - before) * (options.micro_batches - rounds.walked) / rounds.round;
}

}  // namespace mb
