#include "bench/analysis/activation_form.h"

#include "parallel/strategy/layout.h"

namespace mb {
namespace {

enum class Part : std::uint8_t {
  input,
  core,    // of attention: its output and log-sum-exp
  result,  // written together with the block's result
  other
};

class Keeper {
 public:
  Keeper(const StepShape& shape, Recompute recompute)
      : model_(shape.model),
        options_(shape.options),
        block_(block_shape(shape.mesh, shape.options)),
        recompute_(recompute),
        rows_(block_.batch * model_.sequence / block_.context_ways),
        share_(rows_ / block_.row_ways()) {}

  BlockActivations layer() {
    const bool pre = model_.norm == NormPlace::pre;
    const std::int64_t hidden = share_ * model_.hidden;
    keep(hidden, !pre, Part::input);
    keep(hidden, pre);   // pre: norm1's output; post: norm1's input
    keep(hidden, !pre);  // the sum after attention, normed if post
    keep(hidden, pre);   // pre: norm2's output; post: norm2's input
    statistics(share_ * norm_statistics(), Part::other);
    statistics(share_ * norm_statistics(), pre ? Part::other : Part::result);
    attention();
    if (model_.experts > 1) {
      experts();
    } else {
      const std::int64_t ffn = model_.ffn / block_.ways;
      keep(rows_ * (gated() ? 2 * ffn : ffn), false);
      keep(rows_ * ffn, true);
    }
    return kept_;
  }

  BlockActivations head() {
    const bool pre = model_.norm == NormPlace::pre;
    keep(share_ * model_.hidden, !pre, Part::input);
    if (pre) {
      keep(share_ * model_.hidden, true);
      statistics(share_ * norm_statistics(), Part::other);
    }
    keep(rows_ * (padded_vocabulary(model_, block_.ways) / block_.ways), true);  // logits
    statistics(3 * rows_, Part::other);  // maximum, sum of exponentials, the label's logit
    return kept_;
  }

 private:
  bool gated() const { return model_.arch == Arch::llama; }
  std::int64_t norm_statistics() const { return gated() ? 1 : 2; }

  void add(std::int64_t bytes, bool for_weights, Part part) {
    const bool dropped =
        (recompute_ == Recompute::full && (part == Part::core || part == Part::other)) ||
        (recompute_ == Recompute::attention && part == Part::core);
    SavedBytes& saved = dropped ? kept_.recomputed : kept_.kept;
    (for_weights ? saved.until_weight_grad : saved.until_input_grad) += bytes;
  }
  void keep(std::int64_t elements, bool for_weights, Part part = Part::other) {
    add(elements * size_of(options_.dtype), for_weights, part);
  }
  void statistics(std::int64_t elements, Part part) {
    add(elements * size_of(main_dtype(options_.dtype)), false, part);
  }
  void indices(std::int64_t elements, bool for_weights = false) {
    add(elements * size_of(DType::int32), for_weights, Part::other);
  }

  void attention() {
    const std::int64_t heads = model_.heads / block_.ways,
                       kv_heads = local_kv_heads(model_, block_.ways), d = model_.head_dim;
    keep(rows_ * (heads + 2 * kv_heads) * d, false);  // with ulysses, of some heads and all tokens
    keep(rows_ * heads * d, true, Part::core);
    if (block_.context_ways > 1 && block_.context == ContextKind::ulysses)
      keep(rows_ * heads * d, false, Part::core);  // before heads went back for tokens
    statistics(rows_ * heads, Part::core);
  }

  // Router, dispatched tokens, both sides of the experts' activation, what they return.
  void experts() {
    const std::int64_t experts = model_.experts, top = model_.experts_per_token;
    const std::int64_t capacity = expert_capacity(model_), ways = block_.expert_ways;
    const std::int64_t sent = capacity > 0 ? experts * block_.batch * capacity : rows_ * top;
    // Without a capacity there is room for whatever may come.
    const std::int64_t received = capacity > 0 ? sent : sent * ways;
    const std::int64_t ffn = model_.ffn / block_.ways;
    statistics(rows_ * experts, Part::other);
    statistics(rows_ * top, Part::other);
    statistics(2 * block_.batch * experts, Part::other);
    indices(2 * rows_ * top);
    if (capacity == 0) indices(experts, true);
    if (capacity == 0 && ways > 1) indices(experts);
    keep(received * model_.hidden, true);
    keep(received * (gated() ? 2 * ffn : ffn), false);
    keep(received * ffn, true);
    keep(sent * model_.hidden, false);
  }

  const ModelConfig& model_;
  const StepOptions& options_;
  BlockShape block_;
  Recompute recompute_;
  std::int64_t rows_, share_;  // in divided parts, and between them
  BlockActivations kept_;
};

}  // namespace

BlockActivations block_activations(const StepShape& shape, const RankBlock& block, bool recompute) {
  const bool layer = block.kind == BlockKind::layer;
  const bool wanted = recompute && layer && shape.options.recompute_layers.has(block.layer);
  Keeper keeper(shape, wanted ? shape.options.recompute : Recompute::none);
  if (layer) return keeper.layer();
  return block.kind == BlockKind::head ? keeper.head() : BlockActivations{};
}

}  // namespace mb
