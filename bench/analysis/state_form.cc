#include "bench/analysis/state_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "parallel/strategy/layout.h"

namespace mb {
namespace {

class RankParameters {
 public:
  RankParameters(const StepShape& shape, const std::vector<RankBlock>& blocks)
      : model_(shape.model),
        ways_(shape.mesh.size(Axis::tp)),
        expert_ways_(shape.mesh.size(Axis::ep)),
        sequence_parallel_(shape.options.sequence_parallel && ways_ > 1) {
    const auto has = [&](BlockKind kind) {
      return std::any_of(blocks.begin(), blocks.end(),
                         [&](const RankBlock& block) { return block.kind == kind; });
    };
    one_table_ = model_.tied && has(BlockKind::embedding) && has(BlockKind::head);
    for (block_ = 0; block_ < static_cast<int>(blocks.size()); ++block_) {
      if (blocks[block_].kind == BlockKind::embedding) embedding();
      if (blocks[block_].kind == BlockKind::layer) layer();
      if (blocks[block_].kind == BlockKind::head) head();
    }
  }
  std::vector<LocalParameter> take() { return std::move(all_); }

 private:
  bool gpt() const { return model_.arch == Arch::gpt; }
  std::int64_t table() const { return padded_vocabulary(model_, ways_) / ways_ * model_.hidden; }
  LocalParameter& add(std::int64_t elements) {
    return all_.emplace_back(LocalParameter{.elements = elements, .blocks = {block_}});
  }
  LocalParameter& add_shared(std::int64_t elements) {
    LocalParameter& parameter = add(elements);
    parameter.partial = sequence_parallel_;
    return parameter;
  }
  void add_norm() {
    for (int i = 0; i < (gpt() ? 2 : 1); ++i) add_shared(model_.hidden).norm = true;
  }

  void embedding() {
    add(table()).tied = model_.tied && !one_table_;
    if (gpt()) add_shared(model_.sequence * model_.hidden);
  }
  void layer() {
    const std::int64_t h = model_.hidden, q = model_.heads / ways_ * model_.head_dim,
                       kv = local_kv_heads(model_, ways_) * model_.head_dim;
    add_norm();
    add((q + 2 * kv) * h);
    if (gpt()) add(q + 2 * kv);
    add(q * h);
    if (gpt()) add_shared(h).added = true;
    add_norm();
    const std::int64_t ffn = model_.ffn / ways_, up = gpt() ? ffn : 2 * ffn;
    if (model_.experts > 1) {
      add(model_.experts * h).partial = ways_ > 1;
      for (const std::int64_t columns : {up, ffn})
        add(model_.experts / expert_ways_ * columns * h).expert = true;
      return;
    }
    add(up * h);
    if (gpt()) add(up);
    add(ffn * h);
    if (gpt()) add_shared(h).added = true;
  }
  void head() {
    if (model_.norm == NormPlace::pre) add_norm();
    if (one_table_) {
      all_.front().blocks.push_back(block_);
    } else {
      add(table()).tied = model_.tied;
    }
  }

  const ModelConfig& model_;
  int ways_, expert_ways_;
  bool sequence_parallel_, one_table_ = false;
  int block_ = 0;
  std::vector<LocalParameter> all_;
};

}  // namespace

std::vector<RankBlock> blocks_of(const StepShape& shape, int rank) {
  const std::vector<int> layers = stage_layers(shape.model, shape.mesh, shape.options);
  const int ranks = shape.mesh.size(Axis::pp), stages = static_cast<int>(layers.size());
  std::vector<RankBlock> blocks;
  for (int chunk = 0; chunk < stages / ranks; ++chunk) {
    const int stage = stage_of(placement_of(shape.options), rank, chunk, ranks);
    int layer = 0;
    for (int before = 0; before < stage; ++before) layer += layers[before];
    if (stage == 0) blocks.push_back({BlockKind::embedding, -1, chunk});
    for (int i = 0; i < layers[stage]; ++i) blocks.push_back({BlockKind::layer, layer + i, chunk});
    if (stage == stages - 1) blocks.push_back({BlockKind::head, -1, chunk});
  }
  return blocks;
}

std::vector<LocalParameter> parameters_of(const StepShape& shape, int rank) {
  return RankParameters(shape, blocks_of(shape, rank)).take();
}

std::int64_t local_parameters(const StepShape& shape, int rank) {
  std::int64_t sum = 0;
  for (const LocalParameter& p : parameters_of(shape, rank)) sum += p.elements;
  return sum;
}

std::vector<FlatBucket> flat_buckets(const StepShape& shape, int rank) {
  const bool zero3 = shape.options.zero == 3,
             by_half = shape.options.zero >= 2 && splits_backward(shape.options);
  const int context = shape.mesh.size(Axis::dp) * shape.mesh.size(Axis::cp);
  const std::int64_t limit = shape.options.bucket_bytes / size_of(main_dtype(shape.options.dtype));
  const std::vector<RankBlock> blocks = blocks_of(shape, rank);
  const std::vector<LocalParameter> parameters = parameters_of(shape, rank);
  // Gradients that different ranks sum, and with ZeRO-3 blocks, do not share a bucket.
  std::map<std::tuple<bool, bool, bool, bool, int, int>, int> open;
  std::vector<FlatBucket> buckets;
  std::vector<std::set<int>> used_by;
  for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) {
    const int block = p->blocks.front();
    const auto kind = std::tuple(p->expert, p->partial, p->tied, p->norm && by_half,
                                 blocks[block].chunk, zero3 ? block : -1);
    const bool alone = zero3 && p->blocks.size() > 1;
    const auto found = open.find(kind);
    int b = static_cast<int>(buckets.size());
    if (found != open.end() && !alone &&
        (zero3 || buckets[found->second].elements + p->elements <= limit)) {
      b = found->second;
    } else {
      buckets.emplace_back();
      used_by.emplace_back();
      const int owners = p->expert ? context : context * shape.mesh.size(Axis::ep);
      buckets[b] = {.owners = shape.options.zero > 0 ? owners : 1,
                    .sharers = owners * shape.mesh.size(Axis::rdp),
                    .early = p->norm && by_half};
      if (!alone) open.insert_or_assign(kind, b);
    }
    buckets[b].elements += p->elements;
    buckets[b].only_added = buckets[b].only_added && p->added;
    used_by[b].insert(p->blocks.begin(), p->blocks.end());
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    FlatBucket& bucket = buckets[b];
    bucket.elements = (bucket.elements + bucket.owners - 1) / bucket.owners * bucket.owners;
    bucket.blocks.assign(used_by[b].begin(), used_by[b].end());
  }
  return buckets;
}

}  // namespace mb
