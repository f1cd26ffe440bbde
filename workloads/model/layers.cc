#include "workloads/model/layers.h"

#include <cmath>
#include <optional>
#include <utility>

#include "workloads/base/error.h"
#include "workloads/model/block_writer.h"

namespace mb {
namespace {

constexpr auto kForward = &Block::forward;
constexpr auto kBackward = &Block::backward;

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
    w.backward_to(site,
                  Matmul{.m = out,
                         .n = in,
                         .k = rows,
                         .transpose_a = true,
                         .accumulate = w.accumulate(),
                         .to_main = true},
                  {dy, x}, {}, {weight});
  }
  void bias_gradient(BlockWriter& w, const char* site, int dy, int of) const {
    w.backward_to(site, BiasGradient{rows, out, w.accumulate()}, {dy}, {}, {of});
  }
};

struct NormSite {
  int weight, bias = -1, rstd = -1, mean = -1;
  const char* site;

  NormSite(BlockWriter& w, const char* site, const std::string& name) : site(site) {
    weight = w.vector(name + ".weight", w.model().hidden, Init::ones);
    if (kind(w) == NormKind::layer) bias = w.vector(name + ".bias", w.model().hidden, Init::zeros);
  }
  static NormKind kind(const BlockWriter& w) {
    return w.model().arch == Arch::gpt ? NormKind::layer : NormKind::rms;
  }

  void forward(BlockWriter& w, int x, int y) {
    std::vector<int> reads = {x, weight}, writes = {y};
    rstd = w.tensor(std::string(site) + ".rstd", Role::activation, w.rows());
    writes.push_back(rstd);
    if (bias >= 0) {
      reads.push_back(bias);
      mean = w.tensor(std::string(site) + ".mean", Role::activation, w.rows());
      writes.push_back(mean);
    }
    w.forward(site, Norm{kind(w), w.rows(), w.model().hidden, w.model().norm_epsilon}, reads,
              writes);
  }
  // dx = gradient through the norm, plus `residual` if it is a tensor.
  void backward(BlockWriter& w, int dy, int x, int residual, int dx) const {
    std::vector<int> reads = {dy, x, weight, rstd}, parameters = {weight};
    if (mean >= 0) reads.push_back(mean), parameters.push_back(bias);
    if (residual >= 0) reads.push_back(residual);
    w.backward_to(site,
                  NormGradient{kind(w), w.rows(), w.model().hidden, residual >= 0, w.accumulate()},
                  reads, {dx}, parameters);
  }
};

// The attention sublayer without norm and residual sum.
class AttentionPart {
 public:
  AttentionPart(BlockWriter& w, const std::string& layer) : rows_(w.rows()) {
    const ModelConfig& m = w.model();
    const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
    const bool gpt = m.arch == Arch::gpt;
    heads_ = m.heads / w.ways(), kv_heads_ = m.kv_heads / w.ways();
    width_ = (heads_ + 2 * kv_heads_) * m.head_dim;
    const std::string name = layer + ".attention.";
    qkv_ = {
        rows_, m.hidden, width_,
        w.matrix(name + "qkv.weight", q + 2 * kv, m.hidden, Split::rows, m.init_std, {q, kv, kv})};
    if (gpt)
      qkv_.bias = w.vector(name + "qkv.bias", q + 2 * kv, Init::zeros, Split::rows, {q, kv, kv});
    out_ = {rows_, heads_ * m.head_dim, m.hidden,
            w.matrix(name + "out.weight", m.hidden, q, Split::columns,
                     m.init_std / std::sqrt(2.0 * m.layers))};
    if (gpt) out_bias = w.vector(name + "out.bias", m.hidden, Init::zeros);
  }

  int forward(BlockWriter& w, int x) {
    const ModelConfig& m = w.model();
    const std::int64_t batch = rows_ / m.sequence;
    qkv_out_ = w.tensor("attention.qkv", Role::activation, rows_ * width_);
    attended_ = w.tensor("attention.core", Role::activation, rows_ * heads_ * m.head_dim);
    lse_ = w.tensor("attention.lse", Role::activation, rows_ * heads_);
    const int y = w.tensor("attention.out", Role::temporary, rows_ * m.hidden);
    qkv_.forward(w, "attention.qkv", x, qkv_out_);
    rotate(w, kForward, qkv_out_, false);
    w.forward("attention.core", Attention{batch, m.sequence, heads_, kv_heads_, m.head_dim},
              {qkv_out_}, {attended_, lse_});
    out_.forward(w, "attention.out", attended_, y);
    w.exchange(kForward, "attention.out", y);
    return y;
  }

  // dy is the gradient of the sublayer's result, x its input; dx receives the gradient of x.
  void backward(BlockWriter& w, int dy, int x, int dx) const {
    const ModelConfig& m = w.model();
    const std::int64_t batch = rows_ / m.sequence;
    const int d_attended =
        w.tensor("d.attention.core", Role::temporary, rows_ * heads_ * m.head_dim);
    const int d_qkv = w.tensor("d.attention.qkv", Role::temporary, rows_ * width_);
    out_.input_gradient(w, "attention.out", dy, d_attended);
    out_.weight_gradient(w, "attention.out", dy, attended_);
    if (out_bias >= 0) out_.bias_gradient(w, "attention.out", dy, out_bias);
    w.backward("attention.core",
               AttentionGradient{batch, m.sequence, heads_, kv_heads_, m.head_dim},
               {d_attended, qkv_out_, attended_, lse_}, {d_qkv});
    rotate(w, kBackward, d_qkv, true);
    qkv_.input_gradient(w, "attention.qkv", d_qkv, dx);
    w.exchange(kBackward, "attention.qkv", dx);
    qkv_.weight_gradient(w, "attention.qkv", d_qkv, x);
    if (qkv_.bias >= 0) qkv_.bias_gradient(w, "attention.qkv", d_qkv, qkv_.bias);
  }

  int out_bias = -1;  // added after the shards' sum, with the residual

 private:
  void rotate(BlockWriter& w, std::vector<BlockStep> Block::*list, int qkv, bool inverse) const {
    const ModelConfig& m = w.model();
    if (m.arch != Arch::llama) return;
    const Rotary op{rows_ / m.sequence, m.sequence,    heads_, kv_heads_,
                    m.head_dim,         m.rotary_base, inverse};
    list == kForward ? w.forward("attention.rotary", op, {qkv}, {qkv})
                     : w.backward("attention.rotary", op, {qkv}, {qkv});
  }

  std::int64_t rows_, heads_, kv_heads_, width_;
  Linear qkv_, out_;
  int qkv_out_ = -1, attended_ = -1, lse_ = -1;
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
                      {m.ffn, m.ffn})};
    } else {
      up_ = {rows_, m.hidden, ffn_,
             w.matrix(name + "up.weight", m.ffn, m.hidden, Split::rows, m.init_std)};
      up_.bias = w.vector(name + "up.bias", m.ffn, Init::zeros, Split::rows);
    }
    down_ = {rows_, ffn_, m.hidden,
             w.matrix(name + "down.weight", m.hidden, m.ffn, Split::columns,
                      m.init_std / std::sqrt(2.0 * m.layers))};
    if (!gated_) down_bias = w.vector(name + "down.bias", m.hidden, Init::zeros);
  }

  int forward(BlockWriter& w, int x) {
    u_ = w.tensor("mlp.up", Role::activation, rows_ * up_.out);
    g_ = w.tensor("mlp.act", Role::activation, rows_ * ffn_);
    const int y = w.tensor("mlp.down", Role::temporary, rows_ * down_.out);
    up_.forward(w, "mlp.up", x, u_);
    w.forward("mlp.act", gated_ ? OpKind(Swiglu{rows_, ffn_}) : OpKind(Gelu{rows_, ffn_}), {u_},
              {g_});
    down_.forward(w, "mlp.down", g_, y);
    w.exchange(kForward, "mlp.down", y);
    return y;
  }

  void backward(BlockWriter& w, int dy, int x, int dx) const {
    const int dg = w.tensor("d.mlp.act", Role::temporary, rows_ * ffn_);
    const int du = w.tensor("d.mlp.up", Role::temporary, rows_ * up_.out);
    down_.input_gradient(w, "mlp.down", dy, dg);
    down_.weight_gradient(w, "mlp.down", dy, g_);
    if (down_bias >= 0) down_.bias_gradient(w, "mlp.down", dy, down_bias);
    w.backward("mlp.act",
               gated_ ? OpKind(SwigluGradient{rows_, ffn_}) : OpKind(GeluGradient{rows_, ffn_}),
               {dg, u_}, {du});
    up_.input_gradient(w, "mlp.up", du, dx);
    w.exchange(kBackward, "mlp.up", dx);
    up_.weight_gradient(w, "mlp.up", du, x);
    if (up_.bias >= 0) up_.bias_gradient(w, "mlp.up", du, up_.bias);
  }

  int down_bias = -1;

 private:
  std::int64_t rows_, ffn_;
  bool gated_;
  Linear up_, down_;
  int u_ = -1, g_ = -1;
};

// y = a + b (+ bias)
void add(BlockWriter& w, std::vector<BlockStep> Block::*list, const char* site, int a, int b,
         int bias, int y) {
  std::vector<int> reads = {a, b};
  if (bias >= 0) reads.push_back(bias);
  const Add op{w.rows(), w.model().hidden, bias >= 0};
  list == kForward ? w.forward(site, op, reads, {y}) : w.backward(site, op, reads, {y});
}

}  // namespace

Block embedding_block(const ModelConfig& model, const BlockShape& shape, bool accumulate,
                      bool tied_here) {
  BlockWriter w(model, shape, "embedding", accumulate);
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const int table = w.parameter({.name = "embedding.weight",
                                 .rows = model.vocabulary,
                                 .columns = model.hidden,
                                 .split = Split::rows,
                                 .padded_rows = padded,
                                 .init_std = model.init_std,
                                 .decay = true});
  const int positions =
      model.arch == Arch::gpt
          ? w.matrix("position.weight", model.sequence, model.hidden, Split::none, model.init_std)
          : -1;
  const int tokens = w.tokens("tokens", Role::tokens);
  const int y = w.tensor("embedding", Role::output, w.rows() * model.hidden);
  const int dy = w.tensor("d.embedding", Role::d_output, w.rows() * model.hidden);

  w.forward("embedding", Embedding{w.rows(), model.hidden, local}, {tokens, table}, {y});
  w.exchange(kForward, "embedding", y);
  if (positions >= 0)
    w.forward("position", AddPositions{shape.batch, model.sequence, model.hidden}, {positions, y},
              {y});

  if (positions >= 0)
    w.backward_to("position",
                  PositionGradient{shape.batch, model.sequence, model.hidden, accumulate}, {dy}, {},
                  {positions});
  w.backward_to("embedding",
                EmbeddingGradient{w.rows(), model.hidden, local, accumulate || tied_here},
                {tokens, dy}, {}, {table}, tied_here);
  return w.take();
}

Block layer_block(const ModelConfig& model, const BlockShape& shape, int layer, bool accumulate) {
  BlockWriter w(model, shape, "layer", accumulate);
  const std::string name = cat("layers.", layer);
  const bool pre = model.norm == NormPlace::pre;
  const std::int64_t elements = w.rows() * model.hidden;
  // Parameters in the order of the forward, so that the backward finishes them from the last to the
  // first.
  NormSite norm1(w, "norm1", name + ".norm1");
  AttentionPart attention(w, name);
  NormSite norm2(w, "norm2", name + ".norm2");
  MlpPart mlp(w, name);

  const int x = w.tensor("x", Role::input, elements), y = w.tensor("y", Role::output, elements);
  const int dy = w.tensor("dy", Role::d_output, elements),
            dx = w.tensor("dx", Role::d_input, elements);
  if (pre) {
    const int n1 = w.tensor("norm1", Role::activation, elements),
              x1 = w.tensor("x1", Role::activation, elements);
    const int n2 = w.tensor("norm2", Role::activation, elements);
    norm1.forward(w, x, n1);
    add(w, kForward, "attention.residual", attention.forward(w, n1), x, attention.out_bias, x1);
    norm2.forward(w, x1, n2);
    add(w, kForward, "mlp.residual", mlp.forward(w, n2), x1, mlp.down_bias, y);

    const int dn2 = w.tensor("d.norm2", Role::temporary, elements),
              dx1 = w.tensor("d.x1", Role::temporary, elements);
    const int dn1 = w.tensor("d.norm1", Role::temporary, elements);
    mlp.backward(w, dy, n2, dn2);
    norm2.backward(w, dn2, x1, dy, dx1);
    attention.backward(w, dx1, n1, dn1);
    norm1.backward(w, dn1, x, dx1, dx);
  } else {
    const int r1 = w.tensor("r1", Role::activation, elements),
              x1 = w.tensor("norm1", Role::activation, elements);
    const int r2 = w.tensor("r2", Role::activation, elements);
    add(w, kForward, "attention.residual", attention.forward(w, x), x, attention.out_bias, r1);
    norm1.forward(w, r1, x1);
    add(w, kForward, "mlp.residual", mlp.forward(w, x1), x1, mlp.down_bias, r2);
    norm2.forward(w, r2, y);

    const int dr2 = w.tensor("d.r2", Role::temporary, elements),
              dm = w.tensor("d.mlp", Role::temporary, elements);
    const int dx1 = w.tensor("d.norm1", Role::temporary, elements),
              dr1 = w.tensor("d.r1", Role::temporary, elements);
    const int da = w.tensor("d.attention", Role::temporary, elements);
    norm2.backward(w, dy, r2, -1, dr2);
    mlp.backward(w, dr2, x1, dm);
    add(w, kBackward, "mlp.residual", dm, dr2, -1, dx1);
    norm1.backward(w, dx1, r1, -1, dr1);
    attention.backward(w, dr1, x, da);
    add(w, kBackward, "attention.residual", da, dr1, -1, dx);
  }
  return w.take();
}

Block head_block(const ModelConfig& model, const BlockShape& shape, bool accumulate) {
  BlockWriter w(model, shape, "head", accumulate);
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const std::int64_t elements = w.rows() * model.hidden, rows = w.rows();
  const bool pre = model.norm == NormPlace::pre;
  const int x = w.tensor("x", Role::input, elements), dx = w.tensor("dx", Role::d_input, elements);
  const int labels = w.tokens("labels", Role::labels), scalars = w.scalars();
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
  const int maximum = w.tensor("loss.max", Role::activation, rows),
            sums = w.tensor("loss.sums", Role::activation, 2 * rows);

  if (norm) norm->forward(w, x, n);
  head.forward(w, "head", n, logits);
  w.forward("loss.max", VocabularyMax{rows, local, model.vocabulary}, {logits}, {maximum});
  w.exchange(kForward, "loss.max", maximum, true);
  w.forward("loss.sums", VocabularySums{rows, local, model.vocabulary}, {logits, labels, maximum},
            {sums});
  w.exchange(kForward, "loss.sums", sums);
  w.forward("loss", CrossEntropy{rows}, {labels, sums, scalars}, {scalars});

  w.backward("loss", CrossEntropyGradient{rows, local, model.vocabulary},
             {labels, maximum, sums, scalars, logits}, {logits});
  head.input_gradient(w, "head", logits, dn);
  w.exchange(kBackward, "head", dn);
  head.weight_gradient(w, "head", logits, n);
  if (norm) norm->backward(w, dn, x, -1, dx);
  return w.take();
}

}  // namespace mb
