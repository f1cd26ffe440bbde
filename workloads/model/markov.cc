// The synthetic token source: a Markov chain whose entropy rate is known.
#include <algorithm>
#include <cmath>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/base/rng.h"
#include "workloads/base/units.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

constexpr std::int64_t kMostStates = 64;
// Spread of the log-weights of a row; at 2 the entropy of 64 states is near 2.6 of ln 64 = 4.16.
constexpr double kLogSpread = 2.0;

// Row-major [states, states]; rows sum to 1.
std::vector<double> draw_transitions(std::int64_t states, std::uint64_t seed) {
  std::vector<double> rows(static_cast<std::size_t>(states * states));
  for (std::int64_t from = 0; from < states; ++from) {
    double* row = &rows[static_cast<std::size_t>(from * states)];
    double sum = 0;
    for (std::int64_t to = 0; to < states; ++to) {
      row[to] = std::exp(kLogSpread *
                         random_normal(seed, stream_of("markov.transition"), from * states + to));
      sum += row[to];
    }
    for (std::int64_t to = 0; to < states; ++to) row[to] /= sum;
  }
  return rows;
}

// Power iteration; every transition has a positive probability, so it converges geometrically.
std::vector<double> stationary(const std::vector<double>& transitions, std::int64_t states) {
  std::vector<double> share(static_cast<std::size_t>(states), 1.0 / static_cast<double>(states));
  for (int iteration = 0; iteration < 10000; ++iteration) {
    std::vector<double> next(share.size());
    for (std::size_t from = 0; from < share.size(); ++from) {
      for (std::size_t to = 0; to < share.size(); ++to) {
        next[to] += share[from] * transitions[from * share.size() + to];
      }
    }
    double change = 0;
    for (std::size_t s = 0; s < share.size(); ++s) change += std::abs(next[s] - share[s]);
    share = std::move(next);
    if (change < 1e-15) break;
  }
  return share;
}

// Shannon 1948, theorem 5: the entropies of the rows, weighted by the stationary distribution.
double entropy_rate(const std::vector<double>& transitions, const std::vector<double>& share) {
  double nats = 0;
  for (std::size_t i = 0; i < transitions.size(); ++i) {
    if (transitions[i] > 0)
      nats -= share[i / share.size()] * transitions[i] * std::log(transitions[i]);
  }
  return nats;
}

// Running sums of each run of `states` probabilities.
std::vector<double> cumulative(std::vector<double> probabilities, std::int64_t states) {
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (i % static_cast<std::size_t>(states) != 0) probabilities[i] += probabilities[i - 1];
  }
  return probabilities;
}

class MarkovSource : public TokenSource {
 public:
  MarkovSource(std::int64_t states, std::uint64_t seed) : states_(states), seed_(seed) {
    const std::vector<double> transitions = draw_transitions(states, seed);
    const std::vector<double> share = stationary(transitions, states);
    entropy_nats_ = entropy_rate(transitions, share);
    first_ = cumulative(share, states);
    next_ = cumulative(transitions, states);
  }

  void sample(std::int64_t index, std::int64_t sequence, std::int32_t* tokens) const override {
    const std::uint64_t stream =
        random_bits(seed_, stream_of("markov.sample"), static_cast<std::uint64_t>(index));
    tokens[0] = pick(first_.data(), random_uniform(seed_, stream, 0));
    for (std::int64_t t = 1; t <= sequence; ++t) {
      const double* row = &next_[static_cast<std::size_t>(tokens[t - 1] * states_)];
      tokens[t] = pick(row, random_uniform(seed_, stream, static_cast<std::uint64_t>(t)));
    }
  }

  double entropy_nats() const override { return entropy_nats_; }

  std::string describe() const override {
    return cat("Markov chain of ", states_, " states, seed ", seed_, ", entropy ",
               format_count(entropy_nats_), " nats per token");
  }

 private:
  // The last state takes what rounding leaves above its running sum.
  std::int32_t pick(const double* sums, double uniform) const {
    return static_cast<std::int32_t>(std::upper_bound(sums, sums + states_ - 1, uniform) - sums);
  }

  std::int64_t states_;
  std::uint64_t seed_;
  double entropy_nats_ = 0;
  std::vector<double> first_;  // [states] running sums of the stationary distribution
  std::vector<double> next_;   // [states, states] running sums of each row
};

}  // namespace

std::unique_ptr<TokenSource> make_markov_source(std::int64_t vocabulary, std::uint64_t seed) {
  require(vocabulary >= 1, "model.vocabulary=", vocabulary, ": give a whole number of at least 1");
  return std::make_unique<MarkovSource>(std::min(vocabulary, kMostStates), seed);
}

}  // namespace mb
