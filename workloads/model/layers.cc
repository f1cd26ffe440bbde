#include "workloads/model/layers.h"

#include <cmath>
#include <optional>
#include <utility>

#include "workloads/base/error.h"
#include "workloads/base/mutation.h"
#include "workloads/model/block_writer.h"
#include "workloads/model/expert_part.h"

namespace mb {
namespace {

using Kind = Exchange::Kind;
using Over = Exchange::Over;

// y = x w^T (+ bias), and its two gradients.
struct Linear {
  std::int64_t rows, in, out;
  int weight, bias = -1;

  void forward(BlockWriter& w, const char* site, int x, int y) const {
    std::vector<int> reads = {x, weight};
    if (bias >= 0) reads.push_back(bias);
    w.forward(site, Matmul{.m = rows, .n = out, .k = in, .transpose_b = true, .bias = bias >= 0},
              std::move(reads), {y});
  }
  void input_gradient(BlockWriter& w, const char* site, int dy, int dx) const {
    w.backward(site, Matmul{.m = rows, .n = in, .k = out}, {dy, weight}, {dx});
  }
  void weight_gradient(BlockWriter& w, const char* site, int dy, int x) const {
    w.backward_to(site, Matmul{.m = out, .n = in, .k = rows, .transpose_a = true, .to_main = true},
                  {dy, x}, {}, {weight});
    if (bias >= 0) w.backward_to(site, BiasGradient{rows, out}, {dy}, {}, {bias});
  }
};

struct NormSite {
  int weight, bias = -1, rstd = -1, mean = -1;
  const char* site;

  NormSite(BlockWriter& w, const char* site, const std::string& name) : site(site) {
    weight = w.shared_vector(name + ".weight", w.model().hidden, Init::ones);
    if (kind(w) == NormKind::layer)
      bias = w.shared_vector(name + ".bias", w.model().hidden, Init::zeros);
  }
  static NormKind kind(const BlockWriter& w) {
    return w.model().arch == Arch::gpt ? NormKind::layer : NormKind::rms;
  }

  void forward(BlockWriter& w, int x, int y) {
    std::vector<int> reads = {x, weight}, writes = {y};
    rstd = w.statistic(std::string(site) + ".rstd", Role::activation, w.share());
    writes.push_back(rstd);
    if (bias >= 0) {
      reads.push_back(bias);
      mean = w.statistic(std::string(site) + ".mean", Role::activation, w.share());
      writes.push_back(mean);
    }
    w.forward(site, Norm{kind(w), w.share(), w.model().hidden, w.model().norm_epsilon}, reads,
              writes);
  }
  // dx = gradient through the norm, plus `residual` if it is a tensor.
  void backward(BlockWriter& w, int dy, int x, int residual, int dx) const {
    std::vector<int> reads = {dy, x, weight, rstd}, parameters = {weight};
    if (mean >= 0) reads.push_back(mean), parameters.push_back(bias);
    if (residual >= 0) reads.push_back(residual);
    w.backward_to(site, NormGradient{kind(w), w.share(), w.model().hidden, residual >= 0}, reads,
                  {dx}, parameters);
  }
};

// Causal attention of packed qkv rows, whoever holds them.
class AttentionCore {
 public:
  AttentionCore(BlockWriter& w, const std::string& layer, std::int64_t heads, std::int64_t kv_heads)
      : heads_(heads),
        kv_heads_(kv_heads),
        context_(w.shape().context_ways),
        ring_(context_ > 1 && w.shape().context == ContextKind::ring),
        dropout_(w.dropout(layer + ".attention.core")) {
    const std::int64_t d = w.model().head_dim;
    const int ulysses = ring_ ? 1 : context_;
    width_ = (heads_ + 2 * kv_heads_) * d;
    op_ = {.batch = w.shape().batch,
           .sequence = w.model().sequence,
           .heads = heads_ / ulysses,
           .kv_heads = kv_heads_ / ulysses,
           .head_dim = d,
           .dropout = dropout_,
           .head_ways = ulysses,
           .total_heads = static_cast<int>(w.model().heads)};
  }

  // False where the backward reads the form that has been exchanged instead.
  bool keeps_qkv() const { return context_ == 1 || ring_; }

  // To attended[rows, heads * head_dim].
  int forward(BlockWriter& w, int qkv) {
    const std::int64_t d = w.model().head_dim;
    qkv_ = qkv;
    out_ = attended_ = w.tensor("attention.core", Role::activation, w.rows() * heads_ * d);
    lse_ = w.statistic("attention.lse", Role::activation, w.rows() * heads_);
    if (ring_) {
      int kv = pack(w, kForward);
      for (int step = 0; step < context_; ++step) {
        const int next = step + 1 < context_ ? shift(w, kForward, "kv", kv) : -1;
        std::vector<int> reads = {qkv, kv};
        if (step > 0) reads.insert(reads.end(), {out_, lse_});
        w.forward("attention.core", ring_op<RingAttention>(w, step), reads, {out_, lse_});
        kv = next;
      }
      return attended_;
    }
    if (context_ > 1) {
      qkv_ = to_heads(w, kForward, qkv, heads_, kv_heads_, Role::activation, "attention.qkv");
      out_ = w.tensor("attention.core.heads", Role::activation, w.rows() * heads_ * d);
    }
    w.forward("attention.core", op_, {qkv_}, {out_, lse_});
    if (context_ > 1) to_tokens(w, kForward, out_, heads_, 0, attended_);
    return attended_;
  }

  // d_qkv receives the gradient of all of qkv.
  void backward(BlockWriter& w, int d_attended, int d_qkv) const {
    if (ring_) {
      int kv = pack(w, kBackward), d_kv = w.tensor("d.kv", Role::temporary, kv_elements(w));
      for (int step = 0; step < context_; ++step) {
        const int next = step + 1 < context_ ? shift(w, kBackward, "kv", kv) : -1;
        std::vector<int> reads = {d_attended, qkv_, kv, out_, lse_};
        if (step > 0) reads.insert(reads.end(), {d_qkv, d_kv});
        w.backward("attention.core", ring_op<RingAttentionGradient>(w, step), reads, {d_qkv, d_kv});
        d_kv = shift(w, kBackward, "d.kv", d_kv);
        kv = next;
      }
      w.backward("attention.kv", PackKv{w.rows(), heads_, kv_heads_, w.model().head_dim, true},
                 {d_kv, d_qkv}, {d_qkv});
      return;
    }
    const AttentionGradient gradient{.batch = op_.batch,
                                     .sequence = op_.sequence,
                                     .heads = op_.heads,
                                     .kv_heads = op_.kv_heads,
                                     .head_dim = op_.head_dim,
                                     .dropout = op_.dropout,
                                     .head_ways = op_.head_ways,
                                     .total_heads = op_.total_heads};
    if (context_ == 1) {
      w.backward("attention.core", gradient, {d_attended, qkv_, out_, lse_}, {d_qkv});
      return;
    }
    const int d_out =
        to_heads(w, kBackward, d_attended, heads_, 0, Role::temporary, "d.attention.core");
    const int d_all = w.tensor("d.attention.qkv.heads", Role::temporary, w.rows() * width_);
    w.backward("attention.core", gradient, {d_out, qkv_, out_, lse_}, {d_all});
    to_tokens(w, kBackward, d_all, heads_, kv_heads_, d_qkv);
  }

 private:
  std::int64_t kv_elements(const BlockWriter& w) const {
    return w.rows() * 2 * kv_heads_ * w.model().head_dim;
  }
  template <class Ring>
  Ring ring_op(const BlockWriter& w, int step) const {
    return {.batch = w.shape().batch,
            .sequence = w.model().sequence,
            .heads = heads_,
            .kv_heads = kv_heads_,
            .head_dim = w.model().head_dim,
            .split = w.shape().split(),
            .step = step,
            .dropout = dropout_,
            .total_heads = op_.total_heads};
  }
  int pack(BlockWriter& w, StepList list) const {
    const int kv = w.tensor("attention.kv", Role::temporary, kv_elements(w));
    w.step(list, "attention.kv", PackKv{w.rows(), heads_, kv_heads_, w.model().head_dim, false},
           {qkv_}, {kv});
    return kv;
  }
  int shift(BlockWriter& w, StepList list, const char* name, int from) const {
    const int to = w.tensor(cat("attention.", name), Role::temporary, kv_elements(w));
    w.exchange(list, "attention.kv", {Kind::shift, Over::context}, {from}, to);
    return to;
  }

  // From all heads of this rank's tokens to some heads of all tokens.
  int to_heads(BlockWriter& w, StepList list, int x, std::int64_t heads, std::int64_t kv_heads,
               Role role, const char* name) const {
    const std::int64_t d = w.model().head_dim, width = (heads + 2 * kv_heads) * d;
    const int by_head = w.tensor(cat(name, ".send"), Role::temporary, w.rows() * width);
    const int received = w.tensor(cat(name, ".received"), Role::temporary, w.rows() * width);
    const int all = w.tensor(cat(name, ".heads"), role, w.rows() * width);
    w.step(list, "attention.heads", HeadShuffle{w.rows(), context_, heads, kv_heads, d, false}, {x},
           {by_head});
    w.exchange(list, "attention.heads", {Kind::all_to_all, Over::context}, {by_head}, received);
    w.step(list, "attention.heads",
           TokenShuffle{w.shape().batch, w.model().sequence, width / context_, w.shape().split(),
                        false},
           {received}, {all});
    return all;
  }
  void to_tokens(BlockWriter& w, StepList list, int all, std::int64_t heads, std::int64_t kv_heads,
                 int x) const {
    const std::int64_t d = w.model().head_dim, width = (heads + 2 * kv_heads) * d;
    const int by_rank = w.tensor("attention.tokens.send", Role::temporary, w.rows() * width);
    const int received = w.tensor("attention.tokens.received", Role::temporary, w.rows() * width);
    w.step(list, "attention.tokens",
           TokenShuffle{w.shape().batch, w.model().sequence, width / context_, w.shape().split(),
                        true},
           {all}, {by_rank});
    w.exchange(list, "attention.tokens", {Kind::all_to_all, Over::context}, {by_rank}, received);
    w.step(list, "attention.tokens", HeadShuffle{w.rows(), context_, heads, kv_heads, d, true},
           {received}, {x});
  }

  std::int64_t heads_, kv_heads_, width_ = 0;
  int context_;
  bool ring_;
  Dropout dropout_;
  Attention op_{};
  int qkv_ = -1, out_ = -1, attended_ = -1, lse_ = -1;
};

// The attention sublayer without norm and residual sum.
class AttentionPart {
 public:
  AttentionPart(BlockWriter& w, const std::string& layer)
      : heads_(w.model().heads / w.ways()),
        kv_heads_(local_kv_heads(w.model(), w.ways())),
        core_(w, layer, heads_, kv_heads_) {
    const ModelConfig& m = w.model();
    const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
    const bool gpt = m.arch == Arch::gpt;
    width_ = (heads_ + 2 * kv_heads_) * m.head_dim;
    const int parts = m.kv_heads < w.ways() ? static_cast<int>(m.kv_heads) : 0;
    const std::vector<RowBlock> blocks = {{q}, {kv, parts}, {kv, parts}};
    const std::string name = layer + ".attention.";
    qkv_ = {w.rows(), m.hidden, width_,
            w.matrix(name + "qkv.weight", q + 2 * kv, m.hidden, Split::rows, m.init_std, blocks)};
    if (gpt) qkv_.bias = w.vector(name + "qkv.bias", q + 2 * kv, Init::zeros, Split::rows, blocks);
    out_ = {w.rows(), heads_ * m.head_dim, m.hidden,
            w.matrix(name + "out.weight", m.hidden, q, Split::columns,
                     m.init_std / std::sqrt(2.0 * m.layers))};
    if (gpt) out_bias = w.shared_vector(name + "out.bias", m.hidden, Init::zeros);
  }

  int forward(BlockWriter& w, int x) {
    const Role role = core_.keeps_qkv() ? Role::activation : Role::temporary;
    qkv_out_ = w.tensor("attention.qkv", role, w.rows() * width_);
    const int y = w.tensor("attention.out", Role::temporary, w.share_elements());
    qkv_.forward(w, "attention.qkv", w.gather_rows(kForward, "attention.qkv", x), qkv_out_);
    rotate(w, kForward, qkv_out_, false);
    attended_ = core_.forward(w, qkv_out_);
    const int partial = w.partial_of(y);
    out_.forward(w, "attention.out", attended_, partial);
    w.sum_rows(kForward, "attention.out", partial, y);
    return y;
  }

  // dy is the gradient of the sublayer's result, x its input; dx receives the gradient of x.
  void backward(BlockWriter& w, int dy, int x, int dx) const {
    const int d_attended = w.tensor("d.attention.core", Role::temporary, w.rows() * out_.in);
    const int d_qkv = w.tensor("d.attention.qkv", Role::temporary, w.rows() * width_);
    const int dy_all = w.gather_rows(kBackward, "attention.out", dy);
    out_.input_gradient(w, "attention.out", dy_all, d_attended);
    out_.weight_gradient(w, "attention.out", dy_all, attended_);
    if (out_bias >= 0)
      w.backward_to("attention.out", BiasGradient{w.share(), out_.out}, {dy}, {}, {out_bias});
    core_.backward(w, d_attended, d_qkv);
    rotate(w, kBackward, d_qkv, true);
    const int x_all = w.gather_rows(kBackward, "attention.qkv", x, true);
    const int partial = w.partial_of(dx);
    qkv_.input_gradient(w, "attention.qkv", d_qkv, partial);
    w.sum_rows(kBackward, "attention.qkv", partial, dx);
    qkv_.weight_gradient(w, "attention.qkv", d_qkv, x_all);
  }

  int out_bias = -1;  // added after the shards' sum, with the residual

 private:
  void rotate(BlockWriter& w, StepList list, int qkv, bool inverse) const {
    const ModelConfig& m = w.model();
    if (m.arch != Arch::llama) return;
    w.step(list, "attention.rotary",
           Rotary{w.shape().batch, m.sequence, heads_, kv_heads_, m.head_dim, m.rotary_base,
                  inverse, w.shape().split()},
           {qkv}, {qkv});
  }

  std::int64_t heads_, kv_heads_, width_ = 0;
  AttentionCore core_;
  Linear qkv_{}, out_{};
  int qkv_out_ = -1, attended_ = -1;
};

// The feed-forward sublayer without norm and residual sum.
class MlpPart {
 public:
  MlpPart(BlockWriter& w, const std::string& layer)
      : rows_(w.rows()), gated_(w.model().arch == Arch::llama) {
    const ModelConfig& m = w.model();
    ffn_ = m.ffn / w.ways();
    const std::string name = layer + ".mlp.";
    if (gated_) {
      up_ = {rows_, m.hidden, 2 * ffn_,
             w.matrix(name + "gate_up.weight", 2 * m.ffn, m.hidden, Split::rows, m.init_std,
                      {{m.ffn}, {m.ffn}})};
    } else {
      up_ = {rows_, m.hidden, ffn_,
             w.matrix(name + "up.weight", m.ffn, m.hidden, Split::rows, m.init_std)};
      up_.bias = w.vector(name + "up.bias", m.ffn, Init::zeros, Split::rows);
    }
    down_ = {rows_, ffn_, m.hidden,
             w.matrix(name + "down.weight", m.hidden, m.ffn, Split::columns,
                      m.init_std / std::sqrt(2.0 * m.layers))};
    if (!gated_) down_bias = w.shared_vector(name + "down.bias", m.hidden, Init::zeros);
  }

  int forward(BlockWriter& w, int x) {
    u_ = w.tensor("mlp.up", Role::activation, rows_ * up_.out);
    g_ = w.tensor("mlp.act", Role::activation, rows_ * ffn_);
    const int y = w.tensor("mlp.down", Role::temporary, w.share_elements());
    up_.forward(w, "mlp.up", w.gather_rows(kForward, "mlp.up", x), u_);
    w.forward("mlp.act", gated_ ? OpKind(Swiglu{rows_, ffn_}) : OpKind(Gelu{rows_, ffn_}), {u_},
              {g_});
    const int partial = w.partial_of(y);
    down_.forward(w, "mlp.down", g_, partial);
    w.sum_rows(kForward, "mlp.down", partial, y);
    return y;
  }

  void backward(BlockWriter& w, int dy, int x, int dx) const {
    const int dg = w.tensor("d.mlp.act", Role::temporary, rows_ * ffn_);
    const int du = w.tensor("d.mlp.up", Role::temporary, rows_ * up_.out);
    const int dy_all = w.gather_rows(kBackward, "mlp.down", dy);
    down_.input_gradient(w, "mlp.down", dy_all, dg);
    down_.weight_gradient(w, "mlp.down", dy_all, g_);
    if (down_bias >= 0)
      w.backward_to("mlp.down", BiasGradient{w.share(), down_.out}, {dy}, {}, {down_bias});
    w.backward("mlp.act",
               gated_ ? OpKind(SwigluGradient{rows_, ffn_}) : OpKind(GeluGradient{rows_, ffn_}),
               {dg, u_}, {du});
    const int x_all = w.gather_rows(kBackward, "mlp.up", x, true);
    const int partial = w.partial_of(dx);
    up_.input_gradient(w, "mlp.up", du, partial);
    w.sum_rows(kBackward, "mlp.up", partial, dx);
    up_.weight_gradient(w, "mlp.up", du, x_all);
  }

  int down_bias = -1;

 private:
  std::int64_t rows_, ffn_;
  bool gated_;
  Linear up_, down_;
  int u_ = -1, g_ = -1;
};

// One MLP or many.
class FeedForward {
 public:
  FeedForward(BlockWriter& w, const std::string& layer)
      : part_(w.model().experts > 1 ? Part(std::in_place_type<ExpertPart>, w, layer)
                                    : Part(std::in_place_type<MlpPart>, w, layer)) {}
  int forward(BlockWriter& w, int x) {
    return std::visit([&](auto& part) { return part.forward(w, x); }, part_);
  }
  void backward(BlockWriter& w, int dy, int x, int dx) const {
    std::visit([&](const auto& part) { part.backward(w, dy, x, dx); }, part_);
  }
  int bias() const {  // added with the residual; -1: there is none
    const auto* mlp = std::get_if<MlpPart>(&part_);
    return mlp ? mlp->down_bias : -1;
  }

 private:
  using Part = std::variant<MlpPart, ExpertPart>;
  Part part_;
};

// y = dropout(a (+ bias)) + b
void add(BlockWriter& w, StepList list, const char* site, int a, int b, int bias, int y,
         const Dropout& dropout = {}) {
  std::vector<int> reads = {a, b};
  if (bias >= 0) reads.push_back(bias);
  Add op{.rows = w.share(), .n = w.model().hidden, .bias = bias >= 0, .dropout = dropout};
  if (dropout.probability > 0) {
    op.batch = w.shape().batch;
    op.sequence = w.model().sequence;
    op.split = w.share_split();
  }
  w.step(list, site, op, std::move(reads), {y});
}

}  // namespace

Op accumulating(Op op) {
  std::visit(
      [](auto& kind) {
        if constexpr (requires { kind.accumulate; }) kind.accumulate = true;
      },
      op.kind);
  return op;
}

Block embedding_block(const ModelConfig& model, const BlockShape& shape) {
  BlockWriter w(model, shape, "embedding");
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const int table = w.parameter({.name = "embedding.weight",
                                 .rows = model.vocabulary,
                                 .columns = model.hidden,
                                 .split = Split::rows,
                                 .padded_rows = padded,
                                 .init_std = model.init_std,
                                 .decay = true});
  int positions = -1;
  if (model.arch == Arch::gpt) {
    positions = w.parameter({.name = "position.weight",
                             .rows = model.sequence,
                             .columns = model.hidden,
                             .init_std = model.init_std,
                             .decay = true,
                             .partial_gradient = shape.row_ways() > 1});
  }
  const int tokens = w.indices("tokens", Role::tokens, w.rows());
  const int y = w.tensor("embedding", Role::output, w.share_elements());
  const int dy = w.tensor("d.embedding", Role::d_output, w.share_elements());
  const Dropout dropout = w.dropout("embedding");

  const int partial = w.partial_of(y);
  w.forward("embedding", Embedding{w.rows(), model.hidden, local}, {tokens, table}, {partial});
  w.sum_rows(kForward, "embedding", partial, y);
  if (positions >= 0)
    w.forward("position", AddPositions{shape.batch, model.sequence, model.hidden, w.share_split()},
              {positions, y}, {y});
  if (dropout.probability > 0)
    w.forward(
        "embedding.dropout",
        DropoutRows{w.share(), model.hidden, dropout, shape.batch, model.sequence, w.share_split()},
        {y}, {y});

  const int dx = w.through_dropout("embedding.dropout", dropout, dy);
  if (positions >= 0)
    w.backward_to(
        "position",
        PositionGradient{shape.batch, model.sequence, model.hidden, false, w.share_split()}, {dx},
        {}, {positions});
  w.backward_to("embedding", EmbeddingGradient{w.rows(), model.hidden, local},
                {tokens, w.gather_rows(kBackward, "embedding", dx, true)}, {}, {table});
  return w.take();
}

Block layer_block(const ModelConfig& model, const BlockShape& shape, int layer) {
  BlockWriter w(model, shape, "layer");
  const std::string name = cat("layers.", layer);
  const bool pre = model.norm == NormPlace::pre;
  const std::int64_t elements = w.share_elements();
  // Parameters in the order of the forward, so that the backward finishes them from the last to the
  // first.
  NormSite norm1(w, "norm1", name + ".norm1");
  AttentionPart attention(w, name);
  NormSite norm2(w, "norm2", name + ".norm2");
  FeedForward mlp(w, name);
  const Dropout drop1 = w.dropout(name + ".attention.residual"),
                drop2 = w.dropout(name + ".mlp.residual");

  const int x = w.tensor("x", Role::input, elements), y = w.tensor("y", Role::output, elements);
  const int dy = w.tensor("dy", Role::d_output, elements),
            dx = w.tensor("dx", Role::d_input, elements);
  if (pre) {
    const int n1 = w.tensor("norm1", Role::activation, elements),
              x1 = w.tensor("x1", Role::activation, elements);
    const int n2 = w.tensor("norm2", Role::activation, elements);
    norm1.forward(w, x, n1);
    add(w, kForward, "attention.residual", attention.forward(w, n1), x, attention.out_bias, x1,
        drop1);
    norm2.forward(w, x1, n2);
    add(w, kForward, "mlp.residual", mlp.forward(w, n2), x1, mlp.bias(), y, drop2);

    const int dn2 = w.tensor("d.norm2", Role::temporary, elements),
              dx1 = w.tensor("d.x1", Role::temporary, elements);
    const int dn1 = w.tensor("d.norm1", Role::temporary, elements);
    mlp.backward(w, w.through_dropout("mlp.residual", drop2, dy), n2, dn2);
    norm2.backward(w, dn2, x1, dy, dx1);
    attention.backward(w, w.through_dropout("attention.residual", drop1, dx1), n1, dn1);
    norm1.backward(w, dn1, x, dx1, dx);
  } else {
    const int r1 = w.tensor("r1", Role::activation, elements),
              x1 = w.tensor("norm1", Role::activation, elements);
    const int r2 = w.tensor("r2", Role::activation, elements);
    add(w, kForward, "attention.residual", attention.forward(w, x), x, attention.out_bias, r1,
        drop1);
    norm1.forward(w, r1, x1);
    add(w, kForward, "mlp.residual", mlp.forward(w, x1), x1, mlp.bias(), r2, drop2);
    norm2.forward(w, r2, y);

    const int dr2 = w.tensor("d.r2", Role::temporary, elements),
              dm = w.tensor("d.mlp", Role::temporary, elements);
    const int dx1 = w.tensor("d.norm1", Role::temporary, elements),
              dr1 = w.tensor("d.r1", Role::temporary, elements);
    const int da = w.tensor("d.attention", Role::temporary, elements);
    norm2.backward(w, dy, r2, -1, dr2);
    mlp.backward(w, w.through_dropout("mlp.residual", drop2, dr2), x1, dm);
    add(w, kBackward, "mlp.residual", dm, dr2, -1, dx1);
    norm1.backward(w, dx1, r1, -1, dr1);
    attention.backward(w, w.through_dropout("attention.residual", drop1, dr1), x, da);
    add(w, kBackward, "attention.residual", da, dr1, -1, dx);
  }
  return w.take();
}

Block head_block(const ModelConfig& model, const BlockShape& shape) {
  BlockWriter w(model, shape, "head");
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const std::int64_t elements = w.share_elements(), rows = w.rows();
  const bool pre = model.norm == NormPlace::pre;
  const int x = w.tensor("x", Role::input, elements), dx = w.tensor("dx", Role::d_input, elements);
  const int labels = w.indices("labels", Role::labels, rows), scalars = w.scalars();
  int n = x, dn = dx;
  std::optional<NormSite> norm;
  if (pre) {
    norm.emplace(w, "final_norm", "final_norm");
    n = w.tensor("final_norm", Role::activation, elements);
    dn = w.tensor("d.final_norm", Role::temporary, elements);
  }
  Linear head{rows, model.hidden, local,
              w.parameter({.name = model.tied ? "embedding.weight" : "head.weight",
                           .rows = model.vocabulary,
                           .columns = model.hidden,
                           .split = Split::rows,
                           .padded_rows = padded,
                           .init_std = model.init_std,
                           .decay = true})};
  const int logits = w.tensor("logits", Role::activation, rows * local);
  const int maximum = w.statistic("loss.max", Role::activation, rows),
            sums = w.statistic("loss.sums", Role::activation, 2 * rows);

  if (norm) norm->forward(w, x, n);
  head.forward(w, "head", w.gather_rows(kForward, "head", n), logits);
  w.forward("loss.max", VocabularyMax{rows, local, model.vocabulary}, {logits}, {maximum});
  w.exchange(kForward, "loss.max", {Kind::maximum}, {maximum}, maximum);
  w.forward("loss.sums", VocabularySums{rows, local, model.vocabulary}, {logits, labels, maximum},
            {sums});
  if (!mutated("loss_of_a_slice")) w.sum(kForward, "loss.sums", sums);
  w.forward("loss", CrossEntropy{rows}, {labels, sums, scalars}, {scalars});

  w.backward("loss", CrossEntropyGradient{rows, local, model.vocabulary},
             {labels, maximum, sums, scalars, logits}, {logits});
  const int n_all = w.gather_rows(kBackward, "head", n, true);
  const int partial = w.partial_of(dn);
  head.input_gradient(w, "head", logits, partial);
  w.sum_rows(kBackward, "head", partial, dn);
  head.weight_gradient(w, "head", logits, n_all);
  if (norm) norm->backward(w, dn, x, -1, dx);
  return w.take();
}

}  // namespace mb
