#include "bench/choose/rank_data.h"

#include <algorithm>
#include <vector>

#include "bench/analysis/state_form.h"
#include "parallel/cost/op_cost.h"
#include "parallel/strategy/layout.h"

namespace mb {
namespace {

class Adder {
 public:
  Adder(const StepShape& shape, const MeshLinks& links, const Machine& machine, const Stack& stack)
      : shape_(shape),
        options_(shape.options),
        links_(links),
        machine_(machine),
        stack_(stack),
        size_(size_of(options_.dtype)),
        main_(size_of(main_dtype(options_.dtype))) {}

  RankData add_up(int rank) {
    const std::vector<RankBlock> blocks = blocks_of(shape_, rank);
    const std::vector<FlatBucket> buckets = flat_buckets(shape_, rank);
    data_.buckets = static_cast<int>(buckets.size());
    for (const RankBlock& block : blocks) layers_ += block.kind == BlockKind::layer;
    for (const FlatBucket& bucket : buckets) add(bucket, blocks);
    if (layers_ > 0) data_.layer_gather_s /= layers_, data_.layer_reduce_s /= layers_;
    add_states(buckets);
    add_tied(rank);
    return data_;
  }

 private:
  double collective(CollectiveKind kind, Group group, std::int64_t bytes) const {
    return links_.seconds(kind, shape_.mesh.spanned(group), bytes) / stack_.comm_share;
  }
  double op(OpKind kind) const {
    return op_seconds({std::move(kind), options_.dtype}, machine_, stack_);
  }

  void add(const FlatBucket& bucket, const std::vector<RankBlock>& blocks) {
    const bool divided = bucket.owners > 1, slices = options_.zero >= 2 && divided;
    const bool expert = is_expert(bucket);
    const Group owners = expert ? kExpertOwners : kDataOwners;
    const std::int64_t wire = bucket.elements * (options_.reduce_in_dtype ? size_ : main_);
    double reduce = 0, replicas = 0;
    if (divided) {
      reduce = collective(CollectiveKind::reduce_scatter, owners, wire);
      replicas = collective(CollectiveKind::all_reduce, kReplicas, bucket.slice() * main_);
    } else {
      const Group all{static_cast<std::uint8_t>(owners.axes | kReplicas.axes)};
      reduce = collective(CollectiveKind::all_reduce, all, wire);
    }
    const double gather =
        divided ? collective(CollectiveKind::all_gather, owners, bucket.elements * size_) : 0;
    const bool layer = std::all_of(bucket.blocks.begin(), bucket.blocks.end(), [&](int block) {
      return blocks[block].kind == BlockKind::layer;
    });
    data_.reduce_s += reduce;
    data_.replicas_s += replicas;
    data_.gather_s += gather;
    const bool first =
        std::find(bucket.blocks.begin(), bucket.blocks.end(), 0) != bucket.blocks.end();
    if (first) {
      data_.last_reduce_s += reduce, data_.last_replicas_s += replicas;
      data_.first_gather_s += gather;
    }
    (layer ? data_.layer_gather_s : data_.ends_gather_s) += gather;
    (layer ? data_.layer_reduce_s : data_.ends_reduce_s) += reduce;
    if (slices) data_.add_s += op(Accumulate{bucket.slice(), true});
    if (options_.reduce_in_dtype && size_ != main_ && bucket.sharers > 1) {
      data_.add_s += op(Cast{bucket.elements, false});
      data_.add_s += op(Cast{slices ? bucket.slice() : bucket.elements, true});
    }
    const FlatSlice slice{bucket.slice(), bucket.owners, expert, {}};
    data_.norm_s += op(GradientNorm{slice, !slices});
    data_.update_s += op(UpdateParameters{.slice = slice,
                                          .whole_gradient = !slices,
                                          .whole_value = options_.zero < 3 || !divided,
                                          .moments = moments() > 0});
  }

  bool is_expert(const FlatBucket& bucket) const {
    const int context = shape_.mesh.size(Axis::dp) * shape_.mesh.size(Axis::cp);
    return shape_.mesh.size(Axis::ep) > 1 &&
           bucket.sharers == context * shape_.mesh.size(Axis::rdp);
  }
  int masters() const { return size_ == main_ ? 0 : 1; }
  int moments() const { return options_.optimizer.kind == Optimizer::sgd ? 0 : 2; }

  void add_states(const std::vector<FlatBucket>& buckets) {
    // As memory_form.cc: what is updated at once where the host keeps the rest, and neighbouring
    // blocks whose parameters and gradients are on their way.
    std::vector<std::int64_t> slices, whole;
    for (const FlatBucket& bucket : buckets) {
      const bool divided = bucket.owners > 1;
      const std::int64_t value = options_.zero >= 3 && divided ? bucket.slice() : bucket.elements;
      const std::int64_t gradient =
          options_.zero >= 2 && divided ? bucket.slice() : bucket.elements;
      data_.state_bytes += value * size_ + gradient * main_;
      slices.push_back(bucket.slice() * main_ * (masters() + moments()));
      if (divided) whole.push_back(bucket.elements);
    }
    std::int64_t all = 0;
    for (const std::int64_t bytes : slices) all += bytes;
    if (!options_.offload_optimizer) {
      data_.state_bytes += all;
    } else {
      constexpr std::size_t kStaged = 4;  // that follow each other
      for (std::size_t b = 0; b < slices.size(); ++b) {
        std::int64_t near = 0;
        for (std::size_t n = b; n < std::min(b + kStaged, slices.size()); ++n) near += slices[n];
        data_.staged_bytes = std::max(data_.staged_bytes, near);
      }
      const double back_and_forth = 2.0 * static_cast<double>(all) / (machine_.host.gb_per_s * 1e9);
      data_.update_s = std::max(data_.update_s, back_and_forth);
    }
    if (options_.zero >= 2) data_.moving_bytes += largest(whole, 2) * main_;
    if (options_.zero >= 3) {
      std::int64_t held = 0;
      for (const std::int64_t elements : whole) held += elements;
      data_.moving_bytes += (options_.reshard ? largest(whole, 2) : held) * size_;
    }
  }
  static std::int64_t largest(std::vector<std::int64_t> of, std::size_t count) {
    std::sort(of.rbegin(), of.rend());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < std::min(count, of.size()); ++i) sum += of[i];
    return sum;
  }

  void add_tied(int rank) {
    const int ways = options_.zero > 0 ? shape_.mesh.group_size(kDataOwners) : 1;
    for (const LocalParameter& p : parameters_of(shape_, rank)) {
      if (p.tied)
        data_.end_sums_s +=
            collective(CollectiveKind::all_reduce, kEnds, p.elements / ways * main_);
    }
  }

  const StepShape& shape_;
  const StepOptions& options_;
  const MeshLinks& links_;
  const Machine& machine_;
  const Stack& stack_;
  std::int64_t size_, main_;
  int layers_ = 0;
  RankData data_;
};

}  // namespace

RankData rank_data(const StepShape& shape, int rank, const MeshLinks& links, const Machine& machine,
                   const Stack& stack) {
  return Adder(shape, links, machine, stack).add_up(rank);
}

}  // namespace mb
