#include "bench/analysis/ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/strategy/layout.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

using Kind = CollectiveKind;

// A parameter as data ranks see it: its size and who sums its gradient.
struct Piece {
  std::int64_t elements = 0;
  bool expert = false;
  bool partial = false;     // each tensor rank has a part of the gradient
  std::int64_t shared = 0;  // elements that neighbouring tensor ranks hold too
  bool table = false;       // the embedding, or the head that may be tied to it
  bool norm = false;        // its gradient comes with those of inputs
  bool bias = false;        // no backward reads it, but for a replay of the forward
};

// Parameters that data ranks sum, and with ZeRO own slices of, as a whole.
struct Reduced {
  Piece of;  // flags
  std::int64_t elements = 0;
  std::vector<std::int64_t> shared;
  bool tied_copy = false;  // of a table that the pipeline's other end has too
  int reads = 0;           // passes of blocks that read it, of one micro-batch
};

// Fills buckets with pieces, end to end, those apart that differ in who sums them, in their chunk,
// or, with ZeRO-3, which gathers a block at once, in their block; with ZeRO-2 and 3 also norms, if
// the backward is split, as their gradients come earlier.
class Filler {
 public:
  // Elements of a bucket at most, but for a piece that is larger by itself; nullopt: no limit.
  explicit Filler(std::optional<std::int64_t> limit) : limit_(limit) {}

  struct Place {
    int chunk = 0, block = 0;
    bool tied_copy = false;
    bool alone = false;  // in a bucket of its own
    bool early = false;
    int reads = 0;
  };
  void put(const Piece& piece, const Place& place) {
    const Apart apart{piece.expert, piece.partial, place.tied_copy,
                      place.early,  place.chunk,   place.block};
    const auto open = open_.find(apart);
    const bool fits = open != open_.end() && !place.alone &&
                      (!limit_ || buckets_[open->second].elements + piece.elements <= *limit_);
    const std::size_t at = fits ? open->second : buckets_.size();
    if (!fits) buckets_.push_back({.of = piece, .tied_copy = place.tied_copy});
    if (!fits && !place.alone) open_[apart] = at;
    buckets_[at].elements += piece.elements;
    buckets_[at].reads = std::max(buckets_[at].reads, place.reads);
    if (piece.shared > 0) buckets_[at].shared.push_back(piece.shared);
  }
  std::vector<Reduced> take() { return std::move(buckets_); }

 private:
  using Apart = std::tuple<bool, bool, bool, bool, int, int>;
  std::optional<std::int64_t> limit_;
  std::vector<Reduced> buckets_;
  std::map<Apart, std::size_t> open_;  // those that take more
};

class Writer {
 public:
  Writer(const StepShape& shape, int rank)
      : model_(shape.model),
        mesh_(shape.mesh),
        options_(shape.options),
        rank_(rank),
        pipeline_(pipeline_shape(mesh_, options_)),
        layout_(stage_layers(model_, mesh_, options_)),
        t_(mesh_.size(Axis::tp)),
        c_(mesh_.size(Axis::cp)),
        sequence_parallel_(options_.sequence_parallel && t_ > 1),
        m_(options_.micro_batches),
        rows_(options_.micro_batch * model_.sequence / c_),
        heads_(model_.heads / t_),
        kv_heads_(std::max<std::int64_t>(1, model_.kv_heads / t_)) {}

  Traffic write() {
    for (int chunk = 0; chunk < pipeline_.chunks; ++chunk) add_chunk(chunk);
    for (const Reduced& bucket : buckets()) add_bucket(bucket);
    if (mesh_.world() > 1)
      add(kWorld, Site::step_sums, Kind::all_reduce, 1, kStepSums, DType::fp64);
    return std::move(traffic_);
  }

 private:
  int stages() const { return pipeline_.ranks * pipeline_.chunks; }
  int stage(int chunk) const {
    return stage_of(placement_of(options_), rank_, chunk, pipeline_.ranks);
  }
  DType main() const { return main_dtype(options_.dtype); }
  bool mixture() const { return model_.experts > 1; }

  void add(Group group, Site site, std::optional<Kind> kind, std::int64_t calls,
           std::int64_t elements, DType dtype) {
    if (calls == 0 || mesh_.group_size(group) == 1) return;
    traffic_[{group, site, kind}] += {calls, calls * elements, calls * elements * size_of(dtype)};
  }
  void add_over(Axis axis, Site site, Kind kind, std::int64_t calls, std::int64_t elements) {
    add(group_of(axis), site, kind, calls, elements, options_.dtype);
  }

  // --- Activations ------------------------------------------------------------------------------

  void add_chunk(int chunk) {
    const int own = stage(chunk);
    int layer = 0;
    for (int before = 0; before < own; ++before) layer += layout_[before];
    for (const int end = layer + layout_[own]; layer < end; ++layer) add_layer(layer);
    if (own == 0) add_embedding();
    if (own + 1 == stages()) add_head();
    add_message(own + 1, Site::activations);
    add_message(own - 1, Site::gradients);
  }

  void add_message(int to, Site site) {
    if (to < 0 || to == stages()) return;
    if (place_of(placement_of(options_), to, pipeline_.ranks).rank == rank_) return;
    const std::int64_t share = rows_ / (sequence_parallel_ ? t_ : 1) * model_.hidden;
    add(group_of(Axis::pp), site, std::nullopt, m_, share, options_.dtype);
  }

  void add_embedding() {
    const std::int64_t n = rows_ * model_.hidden;
    if (sequence_parallel_) {
      add_over(Axis::tp, Site::embedding, Kind::reduce_scatter, m_, n);
      add_over(Axis::tp, Site::embedding, Kind::all_gather, m_, n);
    } else {
      add_over(Axis::tp, Site::embedding, Kind::all_reduce, m_, n);
    }
  }

  void add_head() {
    const std::int64_t n = rows_ * model_.hidden;
    if (sequence_parallel_) {
      add_over(Axis::tp, Site::head, Kind::all_gather, 2 * m_, n);
      add_over(Axis::tp, Site::head, Kind::reduce_scatter, m_, n);
    } else {
      add_over(Axis::tp, Site::head, Kind::all_reduce, m_, n);
    }
    for (const std::int64_t numbers : {1, 2})
      add(group_of(Axis::tp), Site::loss, Kind::all_reduce, m_, numbers * rows_, main());
  }

  void add_layer(int layer) {
    std::int64_t replays = 0;
    for (int i = 0; i < m_ && options_.recompute_layers.has(layer); ++i)
      replays += options_.recompute_micro_batches.has(i);
    const std::int64_t whole = options_.recompute == Recompute::full ? replays : 0;
    const std::int64_t core = options_.recompute == Recompute::none ? 0 : replays;
    add_divided_parts(whole);
    if (options_.context == ContextKind::ring) {
      add_ring(core);
    } else {
      add_ulysses(whole, core);
    }
    if (mixture()) add_experts(whole);
  }

  // Attention and feed-forward: what enters and leaves each. Exchanges beside a matmul's result, or
  // in the forward beside its input, come in as many runs of rows as the matmul is cut into.
  void add_divided_parts(std::int64_t replays) {
    const bool post = model_.norm == NormPlace::post;
    const std::int64_t cut = options_.tensor_chunks;
    add_part(cut, replays, replays);
    add_part(mixture() ? 1 : cut, replays, post ? replays : 0);
  }
  void add_part(std::int64_t cut, std::int64_t entries_again, std::int64_t exits_again) {
    const std::int64_t n = rows_ * model_.hidden;
    const Kind sum = sequence_parallel_ ? Kind::reduce_scatter : Kind::all_reduce;
    add_over(Axis::tp, Site::layer_forward, sum, m_ * cut, n / cut);
    add_over(Axis::tp, Site::layer_backward, sum, m_ * cut, n / cut);
    add_over(Axis::tp, Site::layer_replay, sum, exits_again * cut, n / cut);
    if (!sequence_parallel_) return;
    add_over(Axis::tp, Site::layer_forward, Kind::all_gather, m_ * cut, n / cut);
    add_over(Axis::tp, Site::layer_backward, Kind::all_gather, m_, n);
    add_over(Axis::tp, Site::layer_inputs, Kind::all_gather, m_, n);
    add_over(Axis::tp, Site::layer_replay, Kind::all_gather, entries_again * cut, n / cut);
  }

  void add_ring(std::int64_t replays) {
    const std::int64_t kv = rows_ * 2 * kv_heads_ * model_.head_dim;
    add_over(Axis::cp, Site::layer_forward, Kind::shift, (c_ - 1) * m_, kv);
    add_over(Axis::cp, Site::layer_backward, Kind::shift, (2 * c_ - 1) * m_, kv);
    add_over(Axis::cp, Site::layer_replay, Kind::shift, (c_ - 1) * replays, kv);
  }

  void add_ulysses(std::int64_t whole, std::int64_t core) {
    const std::int64_t result = rows_ * heads_ * model_.head_dim;
    const std::int64_t qkv = rows_ * (heads_ + 2 * kv_heads_) * model_.head_dim;
    const auto exchange = [&](Site site, std::int64_t calls, std::int64_t elements) {
      add_over(Axis::cp, site, Kind::all_to_all, calls, elements);
    };
    for (const Site site : {Site::layer_forward, Site::layer_backward}) {
      exchange(site, m_, qkv);
      exchange(site, m_, result);
    }
    exchange(Site::layer_replay, whole, qkv);
    exchange(Site::layer_replay, core, result);
  }

  void add_experts(std::int64_t replays) {
    add(group_of(Axis::cp), Site::router_balance, Kind::all_reduce, m_ + replays,
        2 * options_.micro_batch * model_.experts, main());
    const std::int64_t capacity = expert_capacity(model_);
    const Kind kind = capacity > 0 ? Kind::all_to_all : Kind::all_to_all_v;
    const std::int64_t tokens = capacity > 0 ? model_.experts * options_.micro_batch * capacity
                                             : rows_ * model_.experts_per_token;
    add_over(Axis::ep, Site::layer_forward, kind, 2 * m_, tokens * model_.hidden);
    add_over(Axis::ep, Site::layer_backward, kind, 2 * m_, tokens * model_.hidden);
    add_over(Axis::ep, Site::layer_replay, kind, 2 * replays, tokens * model_.hidden);
    if (capacity == 0)
      add(group_of(Axis::ep), Site::expert_counts, Kind::all_to_all, m_ + replays, model_.experts,
          DType::int32);
  }

  // --- Parameters -------------------------------------------------------------------------------

  bool learned_biases() const { return model_.arch == Arch::gpt; }

  void norm(std::vector<Piece>& pieces) const {
    pieces.push_back({.elements = model_.hidden, .partial = sequence_parallel_, .norm = true});
    if (learned_biases()) pieces.push_back(pieces.back());
  }
  Piece table() const {
    return {.elements = padded_vocabulary(model_, t_) / t_ * model_.hidden, .table = true};
  }
  std::vector<Piece> embedding() const {
    std::vector<Piece> pieces = {table()};
    if (learned_biases())
      pieces.push_back(
          {.elements = model_.sequence * model_.hidden, .partial = sequence_parallel_});
    return pieces;
  }
  std::vector<Piece> head() const {
    std::vector<Piece> pieces;
    if (model_.norm == NormPlace::pre) norm(pieces);
    pieces.push_back(table());
    return pieces;
  }
  std::vector<Piece> layer() const {
    const std::int64_t h = model_.hidden, q = heads_ * model_.head_dim,
                       kv = 2 * kv_heads_ * model_.head_dim, ffn = model_.ffn / t_;
    const std::int64_t up = (model_.arch == Arch::llama ? 2 : 1) * ffn;
    const std::int64_t shared = model_.kv_heads < t_ ? kv : 0;
    const bool biases = learned_biases();
    std::vector<Piece> pieces;
    norm(pieces);
    pieces.push_back({.elements = (q + kv) * h, .shared = shared * h});
    if (biases) pieces.push_back({.elements = q + kv, .shared = shared, .bias = true});
    pieces.push_back({.elements = h * q});
    if (biases) pieces.push_back({.elements = h, .partial = sequence_parallel_, .bias = true});
    norm(pieces);
    if (mixture()) {
      const std::int64_t experts = model_.experts / mesh_.size(Axis::ep);
      pieces.push_back({.elements = model_.experts * h, .partial = t_ > 1});
      pieces.push_back({.elements = experts * up * h, .expert = true});
      pieces.push_back({.elements = experts * h * ffn, .expert = true});
      return pieces;
    }
    pieces.push_back({.elements = up * h});
    if (biases) pieces.push_back({.elements = up, .bias = true});
    pieces.push_back({.elements = h * ffn});
    if (biases) pieces.push_back({.elements = h, .partial = sequence_parallel_, .bias = true});
    return pieces;
  }

  bool has_stage(int wanted) const {
    for (int chunk = 0; chunk < pipeline_.chunks; ++chunk) {
      if (stage(chunk) == wanted) return true;
    }
    return false;
  }

  // Of a chunk's blocks, of which the first may be the embedding: the layers count from 1.
  bool is_replayed(int chunk, int block) const {
    int layer = block - 1;
    for (int before = 0; before < stage(chunk); ++before) layer += layout_[before];
    return options_.recompute == Recompute::full && options_.recompute_layers.has(layer);
  }

  // All blocks' pieces from the last to the first, as the backward finishes them. A tied table
  // that both ends of the pipeline read on one rank is the embedding's.
  std::vector<Reduced> buckets() const {
    const bool zero3 = options_.zero == 3;
    const bool halves = options_.zero >= 2 && splits_backward(options_);
    const bool both_ends = has_stage(0) && has_stage(stages() - 1);
    Filler filler(zero3 ? std::nullopt : std::optional(options_.bucket_bytes / size_of(main())));
    const auto put_block = [&](const std::vector<Piece>& pieces, int chunk, int block, int reads) {
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
        const bool tied = piece->table && model_.tied, one = tied && both_ends;
        if (one && block > 0) continue;
        const int own = piece->bias && !is_replayed(chunk, block) ? 1 : reads;
        filler.put(*piece, {.chunk = chunk,
                            .block = zero3 ? block : 0,
                            .tied_copy = tied && !both_ends,
                            .alone = zero3 && one,
                            .early = halves && piece->norm,
                            .reads = one ? own + 2 : own});  // two of them the head's
      }
    };
    for (int chunk = pipeline_.chunks - 1; chunk >= 0; --chunk) {
      const int own = stage(chunk), layers = layout_[own];
      if (own + 1 == stages()) put_block(head(), chunk, layers + 1, 2);
      for (int block = layers; block > 0; --block) put_block(layer(), chunk, block, 2);
      if (own == 0) put_block(embedding(), chunk, 0, 1);  // its backward reads no parameter
    }
    return filler.take();
  }

  void add_bucket(const Reduced& bucket) {
    const Group owners = mesh_.spanned(bucket.of.expert ? kExpertOwners : kDataOwners);
    const int ways = options_.zero > 0 ? mesh_.group_size(owners) : 1;
    const std::int64_t slice = (bucket.elements + ways - 1) / ways, padded = slice * ways;
    const std::int64_t sums = options_.zero >= 2 && ways > 1 ? m_ : 1;
    const DType wire = options_.reduce_in_dtype ? options_.dtype : main();
    if (ways > 1) {
      const bool every_pass = options_.zero == 3 && options_.reshard;
      add(owners, Site::gradients, Kind::reduce_scatter, sums, padded, wire);
      add(owners, Site::parameters, Kind::all_gather, every_pass ? m_ * bucket.reads : 1, padded,
          options_.dtype);
      add(kReplicas, Site::gradients, Kind::all_reduce, 1, slice, main());
    } else {
      const Group all{static_cast<std::uint8_t>(owners.axes | kReplicas.axes)};
      add(mesh_.spanned(all), Site::gradients, Kind::all_reduce, 1, padded, wire);
    }
    if (bucket.of.partial)
      add(group_of(Axis::tp), Site::replicated_parameters, Kind::all_reduce, 1, slice, main());
    if (bucket.tied_copy) add(kEnds, Site::tied_embedding, Kind::all_reduce, 1, slice, main());
    Group neighbours = group_of(Axis::tp);
    neighbours.part = static_cast<std::uint16_t>(t_ / std::min<std::int64_t>(t_, model_.kv_heads));
    for (const std::int64_t shared : bucket.shared)
      add(neighbours, Site::shared_heads, Kind::all_reduce, sums, shared, main());
  }

  const ModelConfig& model_;
  const Mesh& mesh_;
  const StepOptions& options_;
  int rank_;
  PipelineShape pipeline_;
  std::vector<int> layout_;
  std::int64_t t_, c_;
  bool sequence_parallel_;
  std::int64_t m_;
  std::int64_t rows_;              // tokens of a micro-batch on a context rank
  std::int64_t heads_, kv_heads_;  // of a tensor rank
  Traffic traffic_;
};

}  // namespace

std::string_view name_of(Site site) {
  constexpr std::string_view names[] = {"embedding",
                                        "layer forward",
                                        "layer backward",
                                        "layer inputs again",
                                        "layer replay",
                                        "router balance",
                                        "expert counts",
                                        "head",
                                        "loss",
                                        "activations",
                                        "gradients",
                                        "parameters",
                                        "replicated parameters",
                                        "shared key/value heads",
                                        "tied embedding",
                                        "step sums"};
  return names[static_cast<int>(site)];
}

std::string_view kind_name(const TrafficKey& key) { return key.kind ? name_of(*key.kind) : "send"; }

Traffic ledger(const StepShape& shape, int pipeline_rank) {
  return Writer(shape, pipeline_rank).write();
}

double wire_bytes(const Mesh& mesh, const TrafficKey& key, std::int64_t bytes) {
  const double size = static_cast<double>(bytes);
  return key.kind ? size * busbw_factor(*key.kind, mesh.group_size(key.group)) : size;
}

double data_wire_bytes(const Mesh& mesh, const Traffic& traffic) {
  double sum = 0;
  for (const auto& [key, count] : traffic) {
    const bool data = (key.site == Site::gradients && key.kind) || key.site == Site::parameters;
    if (data) sum += wire_bytes(mesh, key, count.bytes);
  }
  return sum;
}

}  // namespace mb
