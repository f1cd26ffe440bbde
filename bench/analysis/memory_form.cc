#include "bench/analysis/memory_form.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/analysis/activation_form.h"
#include "bench/analysis/state_form.h"
#include "parallel/schedule/closed_form.h"
#include "parallel/strategy/layout.h"

namespace mb {
namespace {

// Live bytes and the most that they have been.
class Level {
 public:
  void add(std::int64_t bytes) { most_ = std::max(most_, live_ += bytes); }
  std::int64_t most() const { return most_; }

 private:
  std::int64_t live_ = 0, most_ = 0;
};

std::vector<Slot> slots_of_rank(const StepShape& shape, int rank) {
  return slots_of_step(shape.mesh, shape.options)[rank];
}

// Activations and inputs along the slots of a rank.
class ActivationWalk {
 public:
  ActivationWalk(const StepShape& shape, int rank, const std::vector<RankBlock>& blocks)
      : shape_(shape), blocks_(blocks), offload_(shape.options.offload_activations) {
    for (const RankBlock& block : blocks)
      for (const bool recompute : {false, true})
        saved_[recompute].push_back(block_activations(shape, block, recompute));
    const std::int64_t tokens = shape.options.micro_batch * shape.model.sequence /
                                shape.mesh.size(Axis::cp) * size_of(DType::int32);
    for (const Slot& slot : slots_of_rank(shape, rank)) {
      if (slot.pass == Pass::forward) {
        forward(slot, tokens);
      } else {
        backward(slot, tokens);
      }
    }
  }
  const Level& device() const { return device_; }
  const Level& host() const { return host_; }
  const Level& input() const { return input_; }

 private:
  const BlockActivations& saved(int block, const Slot& slot) const {
    return saved_[shape_.options.recompute_micro_batches.has(slot.micro_batch)][block];
  }
  bool leaves(int block) const { return offload_ && blocks_[block].kind == BlockKind::layer; }
  std::vector<int> blocks_of_chunk(int chunk) const {
    std::vector<int> of;
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b)
      if (blocks_[b].chunk == chunk) of.push_back(b);
    return of;
  }

  void forward(const Slot& slot, std::int64_t tokens) {
    for (int b : blocks_of_chunk(slot.chunk)) {
      if (blocks_[b].kind != BlockKind::layer) input_.add(tokens);
      const std::int64_t kept = saved(b, slot).kept.sum();
      device_.add(-std::exchange(gone_, 0));
      device_.add(kept);
      if (!leaves(b)) continue;
      host_.add(kept);
      gone_ = std::exchange(leaving_, kept);
    }
  }
  // A layer that has left comes back while the one after it is computed.
  void backward(const Slot& slot, std::int64_t tokens) {
    const std::vector<int> of = blocks_of_chunk(slot.chunk);
    const bool inputs = slot.pass != Pass::weight_grad, weights = slot.pass != Pass::input_grad;
    std::size_t fetched = of.size();
    for (std::size_t i = of.size(); i-- > 0;) {
      const BlockActivations& block = saved(of[i], slot);
      for (; inputs && fetched > 0 && fetched >= i; --fetched) fetch(of[fetched - 1], slot);
      if (inputs) {
        device_.add(block.recomputed.sum());
        device_.add(-std::exchange(gone_, 0));
        if (leaves(of[i])) device_.add(-std::exchange(leaving_, 0));
        device_.add(-block.kept.until_input_grad - block.recomputed.until_input_grad);
        if (blocks_[of[i]].kind == BlockKind::head) input_.add(-tokens);
      }
      if (!weights) continue;
      device_.add(-block.kept.until_weight_grad - block.recomputed.until_weight_grad);
      if (blocks_[of[i]].kind == BlockKind::embedding) input_.add(-tokens);
    }
  }
  void fetch(int block, const Slot& slot) {
    if (!leaves(block)) return;
    const std::int64_t kept = saved(block, slot).kept.sum();
    device_.add(kept);
    host_.add(-kept);
  }

  const StepShape& shape_;
  const std::vector<RankBlock>& blocks_;
  bool offload_;
  std::vector<BlockActivations> saved_[2];  // by block; of a micro-batch that recomputes
  Level device_, host_, input_;
  std::int64_t leaving_ = 0;  // of the last layer, on its way to the host
  std::int64_t gone_ = 0;     // of the one before, which the next computation finds gone
};

bool backward_reads(const StepShape& shape, const RankBlock& block, const FlatBucket& bucket) {
  if (block.kind == BlockKind::embedding) return false;
  const bool anew =
      shape.options.recompute == Recompute::full && shape.options.recompute_layers.has(block.layer);
  return anew || !bucket.only_added;
}

// Buckets that ZeRO-3 gathers along the blocks that a rank enters.
std::int64_t peak_gathered(const StepShape& shape, int rank, const std::vector<RankBlock>& blocks,
                           const std::vector<FlatBucket>& buckets) {
  if (shape.options.zero < 3) return 0;
  std::vector<int> uses;  // blocks; ~block for its backward
  for (const Slot& slot : slots_of_rank(shape, rank)) {
    if (slot.pass == Pass::weight_grad) continue;
    const std::size_t before = uses.size();
    for (int b = 0; b < static_cast<int>(blocks.size()); ++b)
      if (blocks[b].chunk == slot.chunk) uses.push_back(slot.pass == Pass::forward ? b : ~b);
    if (slot.pass != Pass::forward) std::reverse(uses.begin() + before, uses.end());
  }
  const int ahead = shape.options.overlap.gather ? 1 : 0;
  std::vector<std::int64_t> change(uses.size() + 1);
  const auto live = [&](int first, int last, std::int64_t bytes) {
    change[std::max(first - ahead, 0)] += bytes;
    change[last + 1] -= bytes;
  };
  for (const FlatBucket& bucket : buckets) {
    if (bucket.owners == 1) continue;
    const std::int64_t bytes = bucket.elements * size_of(shape.options.dtype);
    int first = -1, last = -1;
    for (int u = 0; u < static_cast<int>(uses.size()); ++u) {
      const int block = uses[u] < 0 ? ~uses[u] : uses[u];
      if (uses[u] < 0 && !backward_reads(shape, blocks[block], bucket)) continue;
      if (std::find(bucket.blocks.begin(), bucket.blocks.end(), block) == bucket.blocks.end())
        continue;
      if (shape.options.reshard) live(u, u, bytes);
      if (first < 0) first = u;
      last = u;
    }
    if (!shape.options.reshard && first >= 0) live(first, last, bytes);
  }
  Level level;
  for (std::int64_t bytes : change) level.add(bytes);
  return level.most();
}

bool divided(const FlatBucket& bucket, const StepShape& shape, int from_stage) {
  return shape.options.zero >= from_stage && bucket.owners > 1;
}

// Gradients on their way to those who keep their sums, along the blocks of the backwards.
class BucketWalk {
 public:
  BucketWalk(const StepShape& shape, int rank, const std::vector<RankBlock>& blocks,
             const std::vector<FlatBucket>& buckets)
      : shape_(shape),
        buckets_(buckets),
        size_(size_of(shape.options.dtype)),
        main_(size_of(main_dtype(shape.options.dtype))),
        copies_(shape.options.reduce_in_dtype && size_ != main_),
        written_(buckets.size(), std::vector<int>(shape.options.micro_batches)),
        left_(buckets.size()) {
    for (std::size_t b = 0; b < buckets.size(); ++b)
      left_[b] = static_cast<int>(buckets[b].blocks.size()) * shape.options.micro_batches;
    for (const Slot& slot : slots_of_rank(shape, rank)) {
      if (slot.pass == Pass::forward) continue;
      for (int block = static_cast<int>(blocks.size()) - 1; block >= 0; --block)
        if (blocks[block].chunk == slot.chunk) backward(slot, block);
    }
  }
  std::int64_t most() const { return level_.most(); }

 private:
  void backward(const Slot& slot, int block) {
    std::vector<std::size_t> written;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const FlatBucket& bucket = buckets_[b];
      if (slot.pass == (bucket.early ? Pass::weight_grad : Pass::input_grad)) continue;
      if (std::find(bucket.blocks.begin(), bucket.blocks.end(), block) == bucket.blocks.end())
        continue;
      written.push_back(b);
      if (written_[b][slot.micro_batch] == 0 && divided(bucket, shape_, 2))
        level_.add(bucket.elements * main_);
    }
    // Sums that started after the block before have had this one's time.
    for (std::size_t b : std::exchange(under_way_, {})) finish(buckets_[b]);
    for (std::size_t b : written) {
      const bool last_of_step = --left_[b] == 0;
      const bool complete =
          ++written_[b][slot.micro_batch] == static_cast<int>(buckets_[b].blocks.size());
      if (divided(buckets_[b], shape_, 2) ? !complete : !last_of_step || !copies_) continue;
      if (buckets_[b].sharers == 1) continue;
      start(buckets_[b]);
      if (shape_.options.overlap.reduce) {
        under_way_.push_back(b);
      } else {
        finish(buckets_[b]);
      }
    }
  }
  void start(const FlatBucket& bucket) {
    if (copies_) {
      level_.add(bucket.elements * size_);
      if (divided(bucket, shape_, 2)) level_.add(-bucket.elements * main_);
    }
    if (divided(bucket, shape_, 2)) level_.add(bucket.slice() * (copies_ ? size_ : main_));
  }
  void finish(const FlatBucket& bucket) {
    const bool slices = divided(bucket, shape_, 2);
    if (copies_ && slices) {
      level_.add(bucket.slice() * main_);
      level_.add(-bucket.slice() * (main_ + size_));
    } else if (slices) {
      level_.add(-bucket.slice() * main_);
    }
    level_.add(-bucket.elements * (copies_ ? size_ : main_));
  }

  const StepShape& shape_;
  const std::vector<FlatBucket>& buckets_;
  std::int64_t size_, main_;
  bool copies_;                            // sums are of copies in the model's dtype
  std::vector<std::vector<int>> written_;  // by bucket and micro-batch: blocks
  std::vector<int> left_;                  // by bucket: blocks and micro-batches to come
  std::vector<std::size_t> under_way_;
  Level level_;
};

struct States {
  std::int64_t parameter = 0, gradient = 0, slices = 0;
  std::int64_t staged = 0;  // the largest slices of neighbours that are updated one after the other
};
States states_of(const StepShape& shape, const std::vector<FlatBucket>& buckets) {
  // While one is updated, the next comes from the host and two are on their way back.
  constexpr std::size_t kStaged = 4;
  States states;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const FlatBucket& bucket = buckets[b];
    states.parameter += divided(bucket, shape, 3) ? bucket.slice() : bucket.elements;
    states.gradient += divided(bucket, shape, 2) ? bucket.slice() : bucket.elements;
    states.slices += bucket.slice();
    std::int64_t near = 0;
    for (std::size_t n = b; n < std::min(b + kStaged, buckets.size()); ++n)
      near += buckets[n].slice();
    states.staged = std::max(states.staged, near);
  }
  return states;
}

constexpr std::string_view kZero = "flat buckets, ZeRO's slices (Rajbhandari et al., 2020)";

}  // namespace

std::string_view name_of(FormKind kind) {
  constexpr std::string_view names[] = {"exact", "near", "at most", "none"};
  return names[static_cast<int>(kind)];
}

std::optional<std::int64_t> chunks_in_flight(const StepShape& shape, int rank) {
  return peak_live_chunks(shape.options.schedule, pipeline_shape(shape.mesh, shape.options), rank);
}

MemoryForm memory_form(const StepShape& shape, int rank) {
  const StepOptions& options = shape.options;
  const std::int64_t size = size_of(options.dtype), main = size_of(main_dtype(options.dtype));
  const std::vector<RankBlock> blocks = blocks_of(shape, rank);
  const std::vector<FlatBucket> buckets = flat_buckets(shape, rank);
  const States states = states_of(shape, buckets);
  const ActivationWalk walk(shape, rank, blocks);
  MemoryForm form;
  const auto set = [&](MemoryClass memory, FormKind kind, std::optional<std::int64_t> bytes,
                       std::string_view source) {
    form.classes[static_cast<int>(memory)] = {kind, bytes, source};
  };

  set(MemoryClass::parameter, FormKind::exact, states.parameter * size, kZero);
  set(MemoryClass::gradient, FormKind::exact, states.gradient * main, kZero);
  const std::int64_t on_device = options.offload_optimizer ? states.staged : states.slices;
  const int masters = size == main ? 0 : 1,
            moments = options.optimizer.kind == Optimizer::sgd ? 0 : 2;
  set(MemoryClass::main_parameter, FormKind::exact, masters * on_device * main, kZero);
  set(MemoryClass::moment, FormKind::exact, moments * on_device * main, kZero);

  set(MemoryClass::activation, FormKind::near, walk.device().most(),
      "what blocks keep (Korthikanti et al., 2022) of micro-batches in flight (Narayanan et al., "
      "SC 2021)");
  set(MemoryClass::input, FormKind::exact, walk.input().most(),
      "tokens and labels of micro-batches in flight");
  set(MemoryClass::gathered, FormKind::exact, peak_gathered(shape, rank, blocks, buckets),
      "ZeRO-3: the block at work and the one ahead, or all with reshard=off");
  set(MemoryClass::bucket, FormKind::at_most, BucketWalk(shape, rank, blocks, buckets).most(),
      "gradients of a micro-batch that are being written or summed, and copies in reduce_dtype");
  set(MemoryClass::workspace, FormKind::none, std::nullopt,
      "temporaries of one block, gradients between stages, step scalars: they follow from the "
      "order of operations alone");

  const std::int64_t state =
      options.offload_optimizer ? (masters + moments) * states.slices * main : 0;
  form.host = {options.offload_activations ? FormKind::near : FormKind::exact,
               state + walk.host().most(),
               "offloaded optimizer state, and activations of micro-batches in flight"};
  return form;
}

}  // namespace mb
