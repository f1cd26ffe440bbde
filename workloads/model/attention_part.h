// The attention sublayer without norm and residual sum, over tensor and context ranks. Part of
// layers.cc.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "workloads/model/linear_part.h"

namespace mb {

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
    w.exchange(list, "attention.kv", {Exchange::Kind::shift, Exchange::Over::context}, {from}, to);
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
    w.exchange(list, "attention.heads", {Exchange::Kind::all_to_all, Exchange::Over::context},
               {by_head}, received);
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
    w.exchange(list, "attention.tokens", {Exchange::Kind::all_to_all, Exchange::Over::context},
               {by_rank}, received);
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
    qkv_.forward_of_share(w, "attention.qkv", x, qkv_out_);
    rotate(w, kForward, qkv_out_, false);
    attended_ = core_.forward(w, qkv_out_);
    out_.forward_to_share(w, "attention.out", attended_, y);
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
    qkv_.input_gradient_to_share(w, "attention.qkv", d_qkv, dx);
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

}  // namespace mb
