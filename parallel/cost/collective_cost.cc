#include "parallel/cost/collective_cost.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "parallel/comm/steps.h"

namespace mb {
namespace {

double over(const Link& link, double bytes) {
  return link.latency_us * 1e-6 + bytes / (link.gb_per_s * 1e9);
}

// Adds up the rounds of one collective.
class Rounds {
 public:
  Rounds(std::span<const int> nodes, const Link& intra, const Link& inter, double node_gb_per_s)
      : nodes_(nodes), intra_(intra), inter_(inter), node_gb_per_s_(node_gb_per_s) {}

  int size() const { return static_cast<int>(nodes_.size()); }
  // A message of the round at hand, or so many alike between the same nodes.
  void send(int from, int to, double bytes, double alike = 1) {
    largest_ = std::max(largest_, bytes);
    if (nodes_[from] != nodes_[to]) {
      crosses_ = true;
      leaving_ = std::max(leaving_, left_[nodes_[from]] += bytes * alike);
      leaving_ = std::max(leaving_, entered_[nodes_[to]] += bytes * alike);
    }
    any_ = true;
  }
  // Ends the round, `times` times over.
  void end(double times = 1) {
    if (any_) {
      const double own = over(crosses_ ? inter_ : intra_, largest_),
                   shared = inter_.latency_us * 1e-6 + leaving_ / (node_gb_per_s_ * 1e9);
      seconds_ += times * (crosses_ ? std::max(own, shared) : own);
    }
    largest_ = leaving_ = 0;
    crosses_ = any_ = false;
    left_.clear(), entered_.clear();
  }
  double seconds() const { return seconds_; }

 private:
  std::span<const int> nodes_;
  const Link &intra_, &inter_;
  double node_gb_per_s_;
  double largest_ = 0, leaving_ = 0, seconds_ = 0;  // leaving_: bytes, of the busiest node
  std::map<int, double> left_, entered_;            // by node
  bool crosses_ = false, any_ = false;
};

bool is_gather(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
}
// All-reduces sum, then gather.
int phases_of(CollectiveKind kind) { return kind == CollectiveKind::all_reduce ? 2 : 1; }

void add_ring(Rounds& rounds, CollectiveKind kind, std::int64_t bytes) {
  const int n = rounds.size();
  const auto size = static_cast<double>(bytes);
  const bool chain = !is_gather(kind) && kind != CollectiveKind::all_reduce;
  const double chunks = static_cast<double>(chunks_of(bytes, n));
  for (int k = 0; k < n - chain; ++k) rounds.send(k, (k + 1) % n, chain ? size / chunks : size / n);
  rounds.end(chain ? n - 2 + chunks : phases_of(kind) * (n - 1));
}

void add_direct(Rounds& rounds, CollectiveKind kind, double bytes) {
  const int n = rounds.size();
  const bool rooted = kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce ||
                      kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
  const bool whole = kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
  for (int d = 1; d < n; ++d) {
    for (int k = 0; k < (rooted ? 1 : n); ++k)
      rounds.send(k, (k + d) % n, whole ? bytes : bytes / n);
    rounds.end(phases_of(kind));
  }
}

void add_halving_doubling(Rounds& rounds, CollectiveKind kind, double bytes) {
  const int n = rounds.size();
  const int takers = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int pairs = n - takers;
  const bool shared = kind == CollectiveKind::all_reduce;
  const auto first_of = [&](int taker) { return taker < pairs ? 2 * taker : taker + pairs; };
  const double part = bytes / (shared ? takers : n);
  const int phases = phases_of(kind);
  for (int pair = 0; pair < pairs; ++pair)
    rounds.send(2 * pair, 2 * pair + 1, shared ? bytes : bytes - part);
  rounds.end(phases);
  if (!shared) {
    for (int pair = 0; pair < pairs; ++pair) rounds.send(2 * pair, 2 * pair + 1, part);
    rounds.end(phases);
  }
  for (int d = 1; d < takers; d *= 2) {
    for (int taker = 0; taker < takers; ++taker) {
      const int doubled = shared ? 0 : std::clamp(pairs - (taker & ~(d - 1)), 0, d);
      rounds.send(first_of(taker), first_of(taker ^ d), part * (d + doubled));
    }
    rounds.end(phases);
  }
}

// From members[0] to all, `whole` bytes or `each` for every member below.
void add_tree(Rounds& rounds, std::span<const int> members, double whole, double each,
              double phases) {
  const int n = static_cast<int>(members.size());
  for (int span = 1; span < n; span *= 2) {
    for (int k = 0; k + span < n; k += 2 * span)
      rounds.send(members[k], members[k + span], whole + each * std::min(span, n - k - span));
    rounds.end(phases);
  }
}

void add_tree(Rounds& rounds, CollectiveKind kind, double bytes) {
  std::vector<int> members;
  for (int k = 0; k < rounds.size(); ++k) members.push_back(k);
  const bool parts = kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
  add_tree(rounds, members, parts ? 0 : bytes, parts ? bytes / rounds.size() : 0, phases_of(kind));
}

void add_two_level(Rounds& rounds, CollectiveKind kind, double bytes, std::span<const int> nodes) {
  std::map<int, std::vector<int>> by_node;
  for (int k = 0; k < rounds.size(); ++k) by_node[nodes[k]].push_back(k);
  std::size_t rails = nodes.size(), most = 0;
  const std::vector<int>* largest = nullptr;
  std::vector<int> leaders;
  for (const auto& [node, members] : by_node) {
    leaders.push_back(members.front());
    rails = std::min(rails, members.size());
    if (members.size() > most) most = members.size(), largest = &members;
  }
  if (kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce) {
    add_tree(rounds, leaders, bytes, 0, 1);
    return add_tree(rounds, *largest, bytes, 0, 1);
  }
  const int phases = phases_of(kind);
  const auto count = static_cast<double>(by_node.size()), share = static_cast<double>(rails);
  const bool shared = kind == CollectiveKind::all_reduce;
  const double part = bytes / (shared ? count * share : static_cast<double>(nodes.size()));
  // Members of the largest node on one rail.
  const double stacked = shared ? 1 : static_cast<double>((most + rails - 1) / rails);
  for (int other = 1; other < stacked; ++other) {
    rounds.send((*largest)[0], (*largest)[other * rails], part);
    rounds.end(phases);
  }
  for (std::size_t m = 0; m < leaders.size() && leaders.size() > 1; ++m)
    rounds.send(leaders[m], leaders[(m + 1) % leaders.size()], part * stacked, share);
  rounds.end(phases * (count - 1));
  double rail = 0;  // what lies on the first
  for (const auto& [node, members] : by_node)
    rail += part * (shared ? 1 : static_cast<double>((members.size() + rails - 1) / rails));
  for (std::size_t local = 1; local < most; ++local) {
    rounds.send((*largest)[0], (*largest)[local], rail);
    rounds.end(phases);
  }
}

bool is_flat(std::span<const int> nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](int node) { return node == nodes[0]; });
}

}  // namespace

double collective_seconds(CollectiveKind kind, std::int64_t bytes, int ranks, const Link& link) {
  if (ranks < 2) return 0;
  if (kind == CollectiveKind::shift) return over(link, static_cast<double>(bytes));
  if (kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce) {
    const int chunks = chunks_of(bytes, ranks);
    return (ranks - 2 + chunks) * over(link, static_cast<double>(bytes) / chunks);
  }
  const int steps = phases_of(kind) * (ranks - 1);
  return steps * over(link, static_cast<double>(bytes) / ranks);
}

double collective_seconds(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                          std::span<const int> nodes, const Link& intra, const Link& inter,
                          double node_gb_per_s) {
  const int ranks = static_cast<int>(nodes.size());
  if (ranks < 2) return 0;
  if (!has_steps(kind, algorithm))
    return collective_seconds(kind, bytes, ranks, is_flat(nodes) ? intra : inter);
  Rounds rounds(nodes, intra, inter, node_gb_per_s);
  const auto size = static_cast<double>(bytes);
  switch (algorithm) {
    case Algorithm::ring:
      add_ring(rounds, kind, bytes);
      break;
    case Algorithm::direct:
      add_direct(rounds, kind, size);
      break;
    case Algorithm::halving_doubling:
      add_halving_doubling(rounds, kind, size);
      break;
    case Algorithm::tree:
      add_tree(rounds, kind, size);
      break;
    default:
      add_two_level(rounds, kind, size, nodes);
  }
  return rounds.seconds();
}

}  // namespace mb
