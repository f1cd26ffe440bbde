// A layer of experts, from the router's logits to all gradients, against a loop over tokens and
// experts. Exchanges between expert ranks are made by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/support/reference.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::expect_close;
using testing::garbage;
using testing::indices;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::scalars;
using testing::tolerance;
using Values = std::vector<double>;

const Backend& reference() {
  static const Backend backend = testing::backends().front();
  return backend;
}

std::int64_t size_of(const Values& x) { return static_cast<std::int64_t>(x.size()); }

void append(Values& x, const Values& tail) { x.insert(x.end(), tail.begin(), tail.end()); }

// Share `index` of `count` equal ones.
Values share(const Values& x, std::int64_t index, std::int64_t count) {
  const auto n = size_of(x) / count;
  return {x.begin() + index * n, x.begin() + (index + 1) * n};
}

// A layer over all tokens, whatever the number of ranks.
struct Layer {
  std::int64_t batch = 4, sequence = 12, experts = 4, top = 1, capacity = 0;
  std::int64_t n = 5, inner = 6;
  bool gated = false;
  double coefficient = 0.3;

  std::int64_t rows() const { return batch * sequence; }
  std::int64_t u_row() const { return inner * (gated ? 2 : 1); }
  Routing routing(int ranks = 1) const {
    return {.batch = batch / ranks,
            .sequence = sequence,
            .experts = experts,
            .top = top,
            .capacity = capacity};
  }
};

// w1[experts, u_row, n], w2[experts, n, inner].
struct Inputs {
  Values x, logits, w1, w2, dy;
};

Inputs inputs_of(const Layer& l) {
  return {noise(1, l.rows() * l.n), noise(2, l.rows() * l.experts, 2),
          noise(3, l.experts * l.u_row() * l.n), noise(4, l.experts * l.n * l.inner),
          noise(5, l.rows() * l.n)};
}

struct Outcome {
  Values y, dx, d_logits, dw1, dw2;
  double balance_loss = 0;
};

void expect_equal(const Outcome& actual, const Outcome& expected, double tolerance,
                  const std::string& what) {
  expect_close(actual.y, expected.y, tolerance, what + " y");
  expect_close(actual.dx, expected.dx, tolerance, what + " dx");
  expect_close(actual.d_logits, expected.d_logits, tolerance, what + " d_logits");
  expect_close(actual.dw1, expected.dw1, tolerance, what + " dw1");
  expect_close(actual.dw2, expected.dw2, tolerance, what + " dw2");
  expect_close({actual.balance_loss}, {expected.balance_loss}, tolerance, what + " balance");
}

// What Route wrote.
struct Routed {
  Values probabilities, choice, gate, slot, counts, balance;
};
Routed route(const Backend& backend, const Routing& r, const Values& logits) {
  const std::int64_t choices = r.rows() * r.top;
  const Values none(choices, -7), zero(r.experts, -7);
  auto w = run_on(backend, Route{r}, {}, {{logits}},
                  {garbage(r.rows() * r.experts), indices(none), garbage(choices), indices(none),
                   indices(zero), garbage(2 * r.batch * r.experts)});
  return {w[0], w[1], w[2], w[3], w[4], w[5]};
}

// Ranks that have an equal share of the sequences and of the experts each.
class ExpertRanks {
 public:
  ExpertRanks(const Backend& backend, const Layer& layer, const Inputs& inputs, int ranks)
      : backend_(backend),
        l_(layer),
        in_(inputs),
        ranks_(ranks),
        routing_(layer.routing(ranks)),
        local_(layer.experts / ranks) {}

  Outcome run() {
    Outcome whole;
    forward(whole);
    backward(whole);
    return whole;
  }

 private:
  // Rows that `source` sends to expert rank `to`: those of its experts.
  std::int64_t rows_sent(int source, int to) const {
    if (l_.capacity) return local_ * routing_.batch * l_.capacity;
    std::int64_t rows = 0;
    for (double count : share(routed_[source].counts, to, ranks_)) rows += std::llround(count);
    return rows;
  }
  // The all-to-all there (or back): buffers of `n` columns.
  std::vector<Values> exchange(const std::vector<Values>& buffers, std::int64_t n,
                               bool back) const {
    std::vector<Values> received(ranks_);
    std::vector<std::int64_t> sent(ranks_, 0);
    for (int to = 0; to < ranks_; ++to) {
      for (int from = 0; from < ranks_; ++from) {
        const std::int64_t size = n * (back ? rows_sent(to, from) : rows_sent(from, to));
        const auto begin = buffers[from].begin() + sent[from];
        received[to].insert(received[to].end(), begin, begin + size);
        sent[from] += size;
      }
    }
    return received;
  }
  ExpertRows expert_rows() const {
    return {.sources = ranks_,
            .experts = local_,
            .buffer_rows = buffer_rows(),
            .rows = ranks_ * routing_.rows() * l_.top / ranks_,
            .fixed = l_.capacity ? routing_.batch * l_.capacity : 0};
  }
  std::int64_t buffer_rows() const { return ranks_ * routing_.buffer_rows(); }
  // counts[sources, local experts] of an expert rank, if they are an operand.
  std::vector<Operand> with_counts(int rank, std::vector<Operand> reads) const {
    if (l_.capacity) return reads;
    Values counts;
    for (const Routed& source : routed_) append(counts, share(source.counts, rank, ranks_));
    reads.push_back(indices(counts));
    return reads;
  }
  // The buffer that an expert rank received, with room after it.
  Values with_room(Values x, std::int64_t n) const {
    x.resize(buffer_rows() * n, std::nan(""));
    return x;
  }
  Values multiply(int rank, ExpertProduct product, const Values& a, const Values& b, std::int64_t n,
                  std::int64_t k) const {
    const std::int64_t size = product == ExpertProduct::weight_gradient ? local_ * n * k
                              : product == ExpertProduct::forward       ? buffer_rows() * n
                                                                        : buffer_rows() * k;
    return run_on(backend_, ExpertMatmul{expert_rows(), n, k, product}, {},
                  with_counts(rank, {{a}, {b}}), {garbage(size)})[0];
  }

  void forward(Outcome& whole) {
    std::vector<Values> sent;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Routing& r = routing_;
      routed_.push_back(route(backend_, r, share(in_.logits, rank, ranks_)));
      sent.push_back(run_on(backend_, Dispatch{r, l_.n, false}, {},
                            {{share(in_.x, rank, ranks_)}, indices(routed_[rank].slot)},
                            {garbage(r.buffer_rows() * l_.n)})[0]);
      whole.balance_loss +=
          run_on(backend_, BalanceLoss{r, l_.coefficient}, {}, {{routed_[rank].balance}},
                 {scalars({0, 0, 0, 0, 1, 0, 0})})[0][3];
    }
    const auto received = exchange(sent, l_.n, false);
    for (int rank = 0; rank < ranks_; ++rank) {
      x_.push_back(with_room(received[rank], l_.n));
      u_.push_back(multiply(rank, ExpertProduct::forward, x_[rank], share(in_.w1, rank, ranks_),
                            l_.u_row(), l_.n));
      a_.push_back(run_on(backend_, ExpertActivation{expert_rows(), l_.inner, l_.gated}, {},
                          with_counts(rank, {{u_[rank]}}), {garbage(buffer_rows() * l_.inner)})[0]);
      z_.push_back(multiply(rank, ExpertProduct::forward, a_[rank], share(in_.w2, rank, ranks_),
                            l_.n, l_.inner));
    }
    z_ = exchange(z_, l_.n, true);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto y = run_on(backend_, Combine{routing_, l_.n}, {},
                            {{z_[rank]}, indices(routed_[rank].slot), {routed_[rank].gate}},
                            {garbage(routing_.rows() * l_.n)});
      append(whole.y, y[0]);
    }
  }

  void backward(Outcome& whole) const {
    std::vector<Values> dz, d_gate, dx;
    for (int rank = 0; rank < ranks_; ++rank) {
      auto d = run_on(backend_, CombineGradient{routing_, l_.n}, {},
                      {{share(in_.dy, rank, ranks_)},
                       {z_[rank]},
                       indices(routed_[rank].slot),
                       {routed_[rank].gate}},
                      {garbage(routing_.buffer_rows() * l_.n), garbage(routing_.rows() * l_.top)});
      dz.push_back(d[0]);
      d_gate.push_back(d[1]);
    }
    dz = exchange(dz, l_.n, false);
    for (int rank = 0; rank < ranks_; ++rank) {
      const Values d = with_room(dz[rank], l_.n);
      const Values da = multiply(rank, ExpertProduct::input_gradient, d,
                                 share(in_.w2, rank, ranks_), l_.n, l_.inner);
      append(whole.dw2,
             multiply(rank, ExpertProduct::weight_gradient, d, a_[rank], l_.n, l_.inner));
      const Values du =
          run_on(backend_, ExpertActivationGradient{expert_rows(), l_.inner, l_.gated}, {},
                 with_counts(rank, {{da}, {u_[rank]}}), {garbage(buffer_rows() * l_.u_row())})[0];
      append(whole.dw1,
             multiply(rank, ExpertProduct::weight_gradient, du, x_[rank], l_.u_row(), l_.n));
      dx.push_back(multiply(rank, ExpertProduct::input_gradient, du, share(in_.w1, rank, ranks_),
                            l_.u_row(), l_.n));
    }
    dx = exchange(dx, l_.n, true);
    for (int rank = 0; rank < ranks_; ++rank) {
      const Routed& r = routed_[rank];
      append(whole.dx, run_on(backend_, Dispatch{routing_, l_.n, true}, {},
                              {{dx[rank]}, indices(r.slot)}, {garbage(routing_.rows() * l_.n)})[0]);
      append(whole.d_logits, run_on(backend_, RouteGradient{routing_, l_.coefficient}, {},
                                    {{d_gate[rank]},
                                     {r.probabilities},
                                     indices(r.choice),
                                     {r.gate},
                                     {r.balance},
                                     scalars({0, 0, 0, 0, 1, 0, 0})},
                                    {garbage(routing_.rows() * l_.experts)})[0]);
    }
  }

  const Backend& backend_;
  const Layer l_;
  const Inputs& in_;
  const int ranks_;
  const Routing routing_;
  const std::int64_t local_;
  std::vector<Routed> routed_;
  std::vector<Values> x_, u_, a_, z_;
};

Outcome layer_on(const Backend& backend, const Layer& layer, const Inputs& inputs, int ranks = 1) {
  return ExpertRanks(backend, layer, inputs, ranks).run();
}

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// One token through one expert.
Values expert_of(const Layer& l, const Inputs& in, std::int64_t expert, std::int64_t token) {
  const auto u = [&](std::int64_t i) {
    double sum = 0;
    for (std::int64_t k = 0; k < l.n; ++k) {
      sum += in.w1[(expert * l.u_row() + i) * l.n + k] * in.x[token * l.n + k];
    }
    return sum;
  };
  Values y(l.n, 0);
  for (std::int64_t i = 0; i < l.inner; ++i) {
    const double a = l.gated ? u(i) / (1 + std::exp(-u(i))) * u(l.inner + i) : gelu_of(u(i));
    for (std::int64_t k = 0; k < l.n; ++k) y[k] += in.w2[(expert * l.n + k) * l.inner + i] * a;
  }
  return y;
}

// y and the balance loss, token by token.
Outcome slow_layer(const Layer& l, const Inputs& in) {
  Outcome result{.y = Values(l.rows() * l.n, 0)};
  for (std::int64_t b = 0; b < l.batch; ++b) {
    std::vector<std::int64_t> taken(l.experts, 0), chosen(l.experts, 0);
    Values mean(l.experts, 0);
    for (std::int64_t t = b * l.sequence; t < (b + 1) * l.sequence; ++t) {
      const double* logits = in.logits.data() + t * l.experts;
      std::vector<std::int64_t> order(l.experts);
      double sum = 0, sum_of_chosen = 0;
      for (std::int64_t e = 0; e < l.experts; ++e) order[e] = e, sum += std::exp(logits[e]);
      std::stable_sort(order.begin(), order.end(),
                       [&](auto i, auto j) { return logits[i] > logits[j]; });
      for (std::int64_t e = 0; e < l.experts; ++e)
        mean[e] += std::exp(logits[e]) / sum / l.sequence;
      for (std::int64_t j = 0; j < l.top; ++j) sum_of_chosen += std::exp(logits[order[j]]);
      for (std::int64_t j = 0; j < l.top; ++j) {
        const std::int64_t e = order[j];
        ++chosen[e];
        if (l.capacity && taken[e]++ >= l.capacity) continue;
        const double gate = std::exp(logits[e]) / (l.top > 1 ? sum_of_chosen : sum);
        const Values part = expert_of(l, in, e, t);
        for (std::int64_t k = 0; k < l.n; ++k) result.y[t * l.n + k] += gate * part[k];
      }
    }
    for (std::int64_t e = 0; e < l.experts; ++e) {
      result.balance_loss +=
          l.coefficient * l.sequence * l.experts / l.top * mean[e] * chosen[e] / l.sequence;
    }
  }
  return result;
}

std::vector<Layer> layers() {
  return {{.top = 1},
          {.top = 2},
          {.top = 2, .gated = true},
          {.top = 1, .capacity = 3},
          {.top = 2, .capacity = 4, .gated = true},
          {.sequence = 70, .experts = 4, .top = 2, .n = 9, .inner = 16},
          {.experts = 8, .top = 3}};
}

TEST(ExpertOps, ALayerEqualsALoopOverTokensAndExperts) {
  for (const Layer& layer : layers()) {
    const Inputs inputs = inputs_of(layer);
    const Outcome actual = layer_on(reference(), layer, inputs), slow = slow_layer(layer, inputs);
    expect_close(actual.y, slow.y, 1e-12, "y");
    EXPECT_NEAR(actual.balance_loss, slow.balance_loss, 1e-12);
  }
}

TEST(ExpertOps, GradientsAgreeWithDifferences) {
  for (const Layer& layer : layers()) {
    const Inputs inputs = inputs_of(layer);
    const Outcome gradient = layer_on(reference(), layer, inputs);
    const auto loss = [&](const Inputs& at) {
      const Outcome o = slow_layer(layer, at);
      double sum = o.balance_loss;
      for (std::size_t i = 0; i < o.y.size(); ++i) sum += o.y[i] * inputs.dy[i];
      return sum;
    };
    const auto check = [&](Values Inputs::*input, const Values& d, const char* what) {
      const Values direction = noise(9, size_of(d));
      Inputs ahead = inputs, behind = inputs;
      double expected = 0;
      for (std::size_t i = 0; i < d.size(); ++i) {
        (ahead.*input)[i] += 1e-6 * direction[i];
        (behind.*input)[i] -= 1e-6 * direction[i];
        expected += d[i] * direction[i];
      }
      EXPECT_NEAR((loss(ahead) - loss(behind)) / 2e-6, expected, 1e-6 * std::abs(expected) + 1e-6)
          << what;
    };
    check(&Inputs::x, gradient.dx, "x");
    check(&Inputs::logits, gradient.d_logits, "logits");
    check(&Inputs::w1, gradient.dw1, "w1");
    check(&Inputs::w2, gradient.dw2, "w2");
  }
}

TEST(ExpertOps, ExpertRanksComputeWhatOneRankDoes) {
  for (const Layer& layer : layers()) {
    const Inputs inputs = inputs_of(layer);
    const Outcome whole = layer_on(reference(), layer, inputs);
    for (int ranks : {2, 4}) {
      expect_equal(layer_on(reference(), layer, inputs, ranks), whole, 1e-12,
                   "ranks " + std::to_string(ranks));
    }
  }
}

TEST(ExpertOps, ALayerAgreesOnAllBackends) {
  for (const Layer& layer : layers()) {
    const Inputs inputs = inputs_of(layer);
    const Outcome whole = layer_on(reference(), layer, inputs);
    for (const Backend& backend : testing::backends()) {
      expect_equal(layer_on(backend, layer, inputs, 2), whole, tolerance(backend, 4),
                   backend.text());
    }
  }
}

TEST(ExpertOps, EqualLogitsChooseTheLowerNumber) {
  const Routing r{.sequence = 2, .experts = 3, .top = 2};
  for (const Backend& backend : testing::backends()) {
    const Routed routed = route(backend, r, {1, 1, 1, 0, 2, 2});
    EXPECT_EQ(routed.choice, (Values{0, 1, 1, 2}));
    EXPECT_EQ(routed.gate, Values(4, 0.5));
    EXPECT_EQ(routed.slot, (Values{0, 1, 2, 3}));
    EXPECT_EQ(routed.counts, (Values{1, 2, 1}));
    EXPECT_EQ(share(routed.balance, 0, 2), (Values{1, 2, 1}));
  }
}

TEST(ExpertOps, TokensThatComeTooLateForTheCapacityAreDropped) {
  const Routing r{.batch = 2, .sequence = 3, .experts = 2, .top = 1, .capacity = 2};
  const Values to_second = {0, 5, 0, 5, 0, 5};
  Values logits = to_second;
  append(logits, {0, 5, 5, 0, 0, 5});
  const Routed routed = route(reference(), r, logits);
  EXPECT_EQ(routed.choice, (Values{1, 1, 1, 1, 0, 1}));
  // Rows 0-1 and 2-3 are the first expert's, for each sequence; 4-5 and 6-7 the second's.
  EXPECT_EQ(routed.slot, (Values{4, 5, -1, 6, 2, 7}));
  EXPECT_EQ(routed.counts, (Values{1, 4}));
  EXPECT_EQ(share(routed.balance, 0, 2), (Values{0, 3, 1, 2})) << "dropped ones too";
  const Values buffer = run_on(reference(), Dispatch{r, 1, false}, {},
                               {{{1, 2, 3, 4, 5, 6}}, indices(routed.slot)}, {garbage(8)})[0];
  EXPECT_EQ(buffer, (Values{0, 0, 5, 0, 1, 2, 4, 6}));
  const Values y = run_on(reference(), Combine{r, 1}, {},
                          {{buffer}, indices(routed.slot), {Values(6, 2)}}, {garbage(6)})[0];
  EXPECT_EQ(y, (Values{2, 4, 0, 8, 10, 12}));
}

TEST(ExpertOps, AnExpertWithoutTokensHasNoGradient) {
  const ExpertRows rows{.sources = 2, .experts = 2, .buffer_rows = 4, .rows = 2};
  const ExpertMatmul op{rows, 1, 1, ExpertProduct::weight_gradient};
  ExpertMatmul adding = op;
  adding.accumulate = true;
  const std::vector<Operand> reads = {{{1, 2, 3, 4}}, {{10, 10, 10, 10}}};
  const auto dw = [&](const ExpertMatmul& what, const Values& counts, const Operand& before) {
    auto operands = reads;
    operands.push_back(indices(counts));
    return run_on(reference(), what, {}, operands, {before})[0];
  };
  EXPECT_EQ(dw(op, {0, 0, 0, 0}, garbage(2)), (Values{0, 0}));
  EXPECT_EQ(dw(op, {0, 1, 0, 2}, garbage(2)), (Values{0, 60}));
  EXPECT_EQ(dw(op, {0, 0, 3, 0}, garbage(2)), (Values{60, 0}));
  EXPECT_EQ(dw(adding, {0, 1, 0, 2}, {{7, 8}}), (Values{7, 68}));
  EXPECT_EQ(dw(op, {1, 1, 1, 1}, garbage(2)), (Values{40, 60}));
}

TEST(ExpertOps, RowsBeyondTheCountsAreLeftAlone) {
  const ExpertRows rows{.sources = 1, .experts = 2, .buffer_rows = 3, .rows = 2};
  for (const Backend& backend : testing::backends()) {
    const auto y = run_on(backend, ExpertMatmul{rows, 1, 1, ExpertProduct::forward}, {},
                          {{{1, 2, 3}}, {{10, 100}}, indices({1, 1})}, {{{-1, -1, -1}}});
    EXPECT_EQ(y[0], (Values{10, 200, -1}));
    const auto a = run_on(backend, ExpertActivation{rows, 1, true}, {},
                          {{{0, 0, 0, 0, 5, 5}}, indices({1, 1})}, {{{-1, -1, -1}}});
    EXPECT_EQ(a[0], (Values{0, 0, -1}));
  }
}

// Context ranks route their rows; the choices and probabilities of a sequence add up.
TEST(ExpertOps, BalanceOfContextRanksAddsUp) {
  const Layer layer{.top = 2};
  Routing r = layer.routing();
  const Values logits = inputs_of(layer).logits;
  const Values whole = route(reference(), r, logits).balance;
  r.split = {.context_ways = 2};
  Values sum(whole.size(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    Values rows;
    for (std::int64_t b = 0; b < layer.batch; ++b) {
      append(rows, share(logits, 2 * b + rank, 2 * layer.batch));
    }
    const Values part = route(reference(), r, rows).balance;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  expect_close(sum, whole, 1e-13, "balance");
}

TEST(ExpertOps, TheBalanceLossIsCountedByOneRank) {
  const Routing r{.sequence = 4, .experts = 2};
  const auto added = [&](int shard, int context) {
    return run_on(reference(), BalanceLoss{r, 0.5},
                  {.shard_index = shard, .context_index = context}, {{{4, 0, 3, 1}}},
                  {scalars({0, 0, 0, 1, 1, 0, 0})})[0][3];
  };
  EXPECT_EQ(added(0, 0), 1 + 0.5 * 4 * 2 * (4 / 4.0) * (3 / 4.0));
  EXPECT_EQ(added(1, 0), 1);
  EXPECT_EQ(added(0, 1), 1);
}

TEST(ExpertOps, GradientsOfTensorRanksAddUpAndScaleWithTheLoss) {
  const Layer layer{.top = 2};
  const Routing r = layer.routing();
  const Routed routed = route(reference(), r, inputs_of(layer).logits);
  const auto gradient = [&](int shard, const Values& d_gate, double loss_scale) {
    return run_on(reference(), RouteGradient{r, 0.5}, {.shard_index = shard},
                  {{d_gate},
                   {routed.probabilities},
                   indices(routed.choice),
                   {routed.gate},
                   {routed.balance},
                   scalars({0, 0, 0, 0, loss_scale, 0, 0})},
                  {garbage(r.rows() * r.experts)})[0];
  };
  const Values a = noise(1, r.rows() * r.top), b = noise(2, r.rows() * r.top);
  Values sum = a, eight = a;
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] += b[i], eight[i] *= 8;
  const Values whole = gradient(0, sum, 1), first = gradient(0, a, 1), second = gradient(1, b, 1);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(first[i] + second[i], whole[i], 1e-14);
  const Values scaled = gradient(0, eight, 8);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(scaled[i], 8 * first[i], 1e-13);
}

}  // namespace
}  // namespace mb
