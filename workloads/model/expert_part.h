// The feed-forward sublayer as a mixture of experts, without norm and residual sum (Shazeer et al.,
// 2017; Fedus et al., Switch Transformer, 2022). Part of layers.cc.
//
// Every tensor rank routes all rows in the same way and has a slice of each expert's ffn; expert
// ranks have whole experts, to which tokens travel and from which they return. Experts have no
// biases.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "workloads/model/block_writer.h"

namespace mb {

class ExpertPart {
 public:
  ExpertPart(BlockWriter& w, const std::string& layer) {
    const ModelConfig& m = w.model();
    gated_ = m.arch == Arch::llama;
    ffn_ = m.ffn / w.ways();
    routing_ = {.batch = w.shape().batch,
                .sequence = m.sequence,
                .split = w.shape().split(),
                .experts = m.experts,
                .top = m.experts_per_token,
                .capacity = expert_capacity(m)};
    const int ways = w.shape().expert_ways;
    rows_ = {.sources = ways,
             .experts = m.experts / ways,
             .buffer_rows = routing_.buffer_rows() * (routing_.capacity || ways == 1 ? 1 : ways),
             .rows = routing_.rows() * m.experts_per_token,
             .fixed = routing_.capacity * w.shape().batch};
    const std::string name = layer + ".experts.";
    router_ = w.parameter({.name = layer + ".router.weight",
                           .rows = m.experts,
                           .columns = m.hidden,
                           .init_std = m.init_std,
                           .decay = true,
                           .partial_gradient = w.ways() > 1});
    up_ = w.parameter(
        {.name = name + (gated_ ? "gate_up.weight" : "up.weight"),
         .rows = up_columns(m.ffn),
         .columns = m.hidden,
         .split = Split::rows,
         .blocks = gated_ ? std::vector<RowBlock>{{m.ffn}, {m.ffn}} : std::vector<RowBlock>{},
         .init_std = m.init_std,
         .decay = true,
         .experts = m.experts});
    down_ = w.parameter({.name = name + "down.weight",
                         .rows = m.hidden,
                         .columns = m.ffn,
                         .split = Split::columns,
                         .init_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers)),
                         .decay = true,
                         .experts = m.experts});
  }

  int forward(BlockWriter& w, int x) {
    const std::int64_t h = w.model().hidden, rows = w.rows(), top = routing_.top;
    const std::int64_t experts = routing_.experts;
    const int logits = w.tensor("router", Role::temporary, rows * experts);
    probabilities_ = w.statistic("router.probabilities", Role::activation, rows * experts);
    gate_ = w.statistic("router.gate", Role::activation, rows * top);
    balance_ = w.statistic("router.balance", Role::activation, 2 * w.shape().batch * experts);
    choice_ = w.indices("router.choice", Role::activation, rows * top);
    slot_ = w.indices("router.slot", Role::activation, rows * top);
    sent_ = w.indices("router.counts", Role::activation, experts);
    scalars_ = w.scalars();
    const int x_all = w.gather_rows(kForward, "router", x);
    w.forward("router", Matmul{.m = rows, .n = experts, .k = h, .transpose_b = true},
              {x_all, router_}, {logits});
    w.forward("router", Route{routing_}, {logits},
              {probabilities_, choice_, gate_, slot_, sent_, balance_});
    w.exchange(kForward, "router.balance", {Exchange::Kind::sum, Exchange::Over::context},
               {balance_}, balance_);
    w.forward("router.balance", BalanceLoss{routing_, w.model().balance_coefficient},
              {balance_, scalars_}, {scalars_});

    const int buffer =
        w.tensor("experts.dispatch", exchanges(w) ? Role::temporary : Role::activation,
                 routing_.buffer_rows() * h);
    w.forward("experts.dispatch", Dispatch{routing_, h, false}, {x_all, slot_}, {buffer});
    received_counts_ = sent_;
    if (exchanges(w) && rows_.fixed == 0) {
      received_counts_ = w.indices("experts.counts", Role::activation, experts);
      w.exchange(kForward, "experts.counts", {Exchange::Kind::all_to_all, Exchange::Over::expert},
                 {sent_}, received_counts_);
    }
    received_ = exchange(w, kForward, "experts.dispatch", buffer, true, Role::activation);
    u_ = w.tensor("experts.up", Role::activation, rows_.buffer_rows * up_columns(ffn_));
    g_ = w.tensor("experts.act", Role::activation, rows_.buffer_rows * ffn_);
    w.forward("experts.up", product(up_columns(ffn_), h, ExpertProduct::forward),
              with_counts({received_, up_}), {u_});
    w.forward("experts.act", ExpertActivation{rows_, ffn_, gated_}, with_counts({u_}), {g_});
    const int result = w.tensor("experts.down", exchanges(w) ? Role::temporary : Role::activation,
                                rows_.buffer_rows * h);
    w.forward("experts.down", product(h, ffn_, ExpertProduct::forward), with_counts({g_, down_}),
              {result});
    returned_ = exchange(w, kForward, "experts.combine", result, false, Role::activation);
    const int y = w.tensor("experts", Role::temporary, w.share_elements());
    const int partial = w.partial_of(y);
    w.forward("experts.combine", Combine{routing_, h}, {returned_, slot_, gate_}, {partial});
    w.sum_rows(kForward, "experts.combine", partial, y);
    return y;
  }

  void backward(BlockWriter& w, int dy, int x, int dx) const {
    const std::int64_t h = w.model().hidden, rows = w.rows();
    const int d_returned =
        w.tensor("d.experts.combine", Role::temporary, routing_.buffer_rows() * h);
    const int d_gate = w.statistic("d.router.gate", Role::temporary, rows * routing_.top);
    const int d_act = w.tensor("d.experts.act", Role::temporary, rows_.buffer_rows * ffn_);
    const int d_up =
        w.tensor("d.experts.up", Role::temporary, rows_.buffer_rows * up_columns(ffn_));
    const int d_received = w.tensor("d.experts.dispatch", Role::temporary, rows_.buffer_rows * h);
    const int d_rows = w.tensor("d.experts.rows", Role::temporary, rows * h);
    const int d_logits = w.tensor("d.router", Role::temporary, rows * routing_.experts);
    const int d_routed = w.tensor("d.router.rows", Role::temporary, rows * h);

    w.backward("experts.combine", CombineGradient{routing_, h},
               {w.gather_rows(kBackward, "experts.combine", dy), returned_, slot_, gate_},
               {d_returned, d_gate});
    const int d_result =
        exchange(w, kBackward, "experts.combine", d_returned, true, Role::temporary);
    w.backward("experts.down", product(h, ffn_, ExpertProduct::input_gradient),
               with_counts({d_result, down_}), {d_act});
    w.backward_to("experts.down", product(h, ffn_, ExpertProduct::weight_gradient),
                  with_counts({d_result, g_}), {}, {down_});
    w.backward("experts.act", ExpertActivationGradient{rows_, ffn_, gated_},
               with_counts({d_act, u_}), {d_up});
    w.backward("experts.up", product(up_columns(ffn_), h, ExpertProduct::input_gradient),
               with_counts({d_up, up_}), {d_received});
    const int d_buffer =
        exchange(w, kBackward, "experts.dispatch", d_received, false, Role::temporary);
    w.backward_to("experts.up", product(up_columns(ffn_), h, ExpertProduct::weight_gradient),
                  with_counts({d_up, received_}), {}, {up_});

    w.backward("router", RouteGradient{routing_, w.model().balance_coefficient},
               {d_gate, probabilities_, choice_, gate_, balance_, scalars_}, {d_logits});
    w.backward("router", Matmul{.m = rows, .n = h, .k = routing_.experts}, {d_logits, router_},
               {d_routed});
    w.backward("experts.dispatch", Dispatch{routing_, h, true}, {d_buffer, slot_}, {d_rows});
    const int partial = w.partial_of(dx);
    w.backward("experts", Add{.rows = rows, .n = h, .bias = false}, {d_routed, d_rows}, {partial});
    w.sum_rows(kBackward, "experts", partial, dx);
    w.backward_to(
        "router",
        Matmul{.m = routing_.experts, .n = h, .k = rows, .transpose_a = true, .to_main = true},
        {d_logits, w.gather_rows(kBackward, "router", x, true)}, {}, {router_});
  }

 private:
  std::int64_t up_columns(std::int64_t ffn) const { return gated_ ? 2 * ffn : ffn; }
  static bool exchanges(const BlockWriter& w) { return w.shape().expert_ways > 1; }
  ExpertMatmul product(std::int64_t n, std::int64_t k, ExpertProduct which) const {
    return {rows_, n, k, which};
  }
  std::vector<int> with_counts(std::vector<int> reads) const {
    if (rows_.fixed == 0) reads.push_back(received_counts_);
    return reads;
  }
  // Rows to the ranks that have their experts, or back.
  int exchange(BlockWriter& w, StepList list, const char* site, int from, bool out,
               Role role) const {
    if (!exchanges(w)) return from;
    const std::int64_t h = w.model().hidden;
    const int to =
        w.tensor(cat(list == kForward ? "" : "d.", site, out ? ".received" : ".returned"), role,
                 (out ? rows_.buffer_rows : routing_.buffer_rows()) * h);
    if (rows_.fixed > 0) {
      w.exchange(list, site, {Exchange::Kind::all_to_all, Exchange::Over::expert}, {from}, to);
    } else {
      w.exchange(list, site, {Exchange::Kind::all_to_all_v, Exchange::Over::expert, h},
                 {from, out ? sent_ : received_counts_, out ? received_counts_ : sent_}, to);
    }
    return to;
  }

  Routing routing_;
  ExpertRows rows_;
  bool gated_ = false;
  std::int64_t ffn_ = 0;
  int router_ = -1, up_ = -1, down_ = -1, scalars_ = -1;
  int probabilities_ = -1, choice_ = -1, gate_ = -1, slot_ = -1, balance_ = -1;
  int sent_ = -1, received_counts_ = -1, received_ = -1, u_ = -1, g_ = -1, returned_ = -1;
};

}  // namespace mb
