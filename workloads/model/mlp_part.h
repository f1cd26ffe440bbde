// The feed-forward sublayer without norm and residual sum. Part of layers.cc.
#pragma once

#include <cmath>
#include <string>

#include "workloads/model/linear_part.h"

namespace mb {

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
    up_.forward_of_share(w, "mlp.up", x, u_);
    w.forward("mlp.act", gated_ ? OpKind(Swiglu{rows_, ffn_}) : OpKind(Gelu{rows_, ffn_}), {u_},
              {g_});
    down_.forward_to_share(w, "mlp.down", g_, y);
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
    up_.input_gradient_to_share(w, "mlp.up", du, dx);
    up_.weight_gradient(w, "mlp.up", du, x_all);
  }

  int down_bias = -1;

 private:
  std::int64_t rows_, ffn_;
  bool gated_;
  Linear up_, down_;
  int u_ = -1, g_ = -1;
};

}  // namespace mb
