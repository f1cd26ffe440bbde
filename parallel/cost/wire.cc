#include "parallel/cost/wire.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <utility>

#include "parallel/comm/steps.h"

namespace mb {
namespace {

// What every member sends and receives over links of each class.
class Loads {
 public:
  explicit Loads(std::span<const int> nodes) : nodes_(nodes), wires_(nodes.size()) {
    for (int node : nodes) ++members_[node];
  }
  int size() const { return static_cast<int>(nodes_.size()); }

  void send(int from, int to, double bytes) {
    const auto over = nodes_[from] == nodes_[to] ? &ClassBytes::intra : &ClassBytes::inter;
    wires_[from].sent.*over += bytes;
    wires_[to].received.*over += bytes;
  }
  // The same from every member to every other.
  void exchange(double bytes) {
    for (int k = 0; k < size(); ++k) {
      const int beside = members_.at(nodes_[k]);
      for (ClassBytes* way : {&wires_[k].sent, &wires_[k].received}) {
        way->intra += bytes * (beside - 1);
        way->inter += bytes * (size() - beside);
      }
    }
  }

  std::vector<MemberWire> take() { return std::move(wires_); }

 private:
  std::span<const int> nodes_;
  std::vector<MemberWire> wires_;
  std::map<int, int> members_;  // by node
};

int power_within(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

// What each member owns of a vector of `bytes` while it is exchanged: of an all_reduce, those that
// take part share it; of the other kinds, everybody owns a part.
class Shares {
 public:
  Shares(double bytes, int members, int takers, bool equal)
      : each_(equal ? bytes / members : 0), taken_(equal ? each_ : bytes / takers) {}
  double of(bool takes) const { return takes ? taken_ : each_; }

 private:
  double each_, taken_;
};

// Both phases of these kinds: a gather of blocks, the way back of one, or both.
struct Phases {
  bool reduces, gathers;
};
Phases phases_of(CollectiveKind kind) {
  return {kind != CollectiveKind::all_gather, kind != CollectiveKind::reduce_scatter};
}

void add_ring(Loads& loads, CollectiveKind kind, double bytes) {
  const int n = loads.size();
  if (kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce) {
    for (int k = 0; k + 1 < n; ++k)
      kind == CollectiveKind::reduce ? loads.send(k + 1, k, bytes) : loads.send(k, k + 1, bytes);
    return;
  }
  const Phases phases = phases_of(kind);
  for (int k = 0; k < n; ++k)
    loads.send(k, (k + 1) % n, bytes * (n - 1) / n * (phases.reduces + phases.gathers));
}

void add_direct(Loads& loads, CollectiveKind kind, double bytes) {
  const int n = loads.size();
  for (int k = 0; k < n; ++k) {
    switch (kind) {
      case CollectiveKind::shift:
        loads.send(k, (k + 1) % n, bytes);
        break;
      case CollectiveKind::broadcast:
      case CollectiveKind::scatter:
        if (k > 0) loads.send(0, k, kind == CollectiveKind::scatter ? bytes / n : bytes);
        break;
      case CollectiveKind::reduce:
      case CollectiveKind::gather:
        if (k > 0) loads.send(k, 0, kind == CollectiveKind::gather ? bytes / n : bytes);
        break;
      default:
        return loads.exchange(bytes / n * (kind == CollectiveKind::all_reduce ? 2 : 1));
    }
  }
}

void add_halving_doubling(Loads& loads, CollectiveKind kind, double bytes) {
  const int n = loads.size(), takers = power_within(n), pairs = n - takers;
  const Shares shares(bytes, n, takers, kind != CollectiveKind::all_reduce);
  const Phases phases = phases_of(kind);
  const auto first_of = [&](int taker) { return taker < pairs ? 2 * taker : taker + pairs; };
  // Of takers [first, first + span).
  const auto block = [&](int first, int span) {
    const int doubled = std::clamp(pairs - first, 0, span);
    return span * shares.of(true) + doubled * shares.of(false);
  };
  for (int taker = 0; taker < takers; ++taker) {
    const int me = first_of(taker);
    for (int d = 1; d < takers; d *= 2) {
      const int peer = taker ^ d;
      if (phases.gathers) loads.send(me, first_of(peer), block(taker & ~(d - 1), d));
      if (phases.reduces) loads.send(me, first_of(peer), block(peer & ~(d - 1), d));
    }
    if (taker >= pairs) continue;
    const double own = shares.of(false), rest = bytes - own;
    if (phases.gathers) loads.send(me + 1, me, own), loads.send(me, me + 1, rest);
    if (phases.reduces) loads.send(me + 1, me, rest), loads.send(me, me + 1, own);
  }
}

// Over a binomial tree whose top is members[0]; `each` is what goes to, or comes from, every
// member below an edge.
void add_tree(Loads& loads, std::span<const int> members, bool down, double whole, double each) {
  const int n = static_cast<int>(members.size());
  for (int k = 1; k < n; ++k) {
    const int span = k & -k, subtree = std::min(span, n - k);
    const double bytes = whole + each * subtree;
    down ? loads.send(members[k - span], members[k], bytes)
         : loads.send(members[k], members[k - span], bytes);
  }
}

void add_tree(Loads& loads, CollectiveKind kind, double bytes) {
  std::vector<int> members(loads.size());
  std::iota(members.begin(), members.end(), 0);
  const bool up = kind == CollectiveKind::reduce || kind == CollectiveKind::gather;
  const bool whole = kind != CollectiveKind::gather && kind != CollectiveKind::scatter;
  const double each = whole ? 0 : bytes / loads.size();
  if (up || kind == CollectiveKind::all_reduce)
    add_tree(loads, members, false, whole ? bytes : 0, each);
  if (!up) add_tree(loads, members, true, whole ? bytes : 0, each);
}

std::vector<std::vector<int>> members_by_node(std::span<const int> nodes) {
  std::vector<std::vector<int>> members;
  std::map<int, std::size_t> place;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const auto [entry, is_new] = place.emplace(nodes[k], members.size());
    if (is_new) members.emplace_back();
    members[entry->second].push_back(static_cast<int>(k));
  }
  return members;
}

void add_two_level_spread(Loads& loads, bool down, double bytes, std::span<const int> nodes) {
  std::vector<int> leaders;
  for (const std::vector<int>& members : members_by_node(nodes)) {
    leaders.push_back(members.front());
    add_tree(loads, members, down, bytes, 0);
  }
  add_tree(loads, leaders, down, bytes, 0);
}

void add_two_level(Loads& loads, CollectiveKind kind, double bytes, std::span<const int> nodes) {
  if (kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce)
    return add_two_level_spread(loads, kind == CollectiveKind::broadcast, bytes, nodes);
  const auto by_node = members_by_node(nodes);
  int rails = loads.size();
  for (const auto& members : by_node) rails = std::min(rails, static_cast<int>(members.size()));
  const int takers = rails * static_cast<int>(by_node.size());
  const Shares shares(bytes, loads.size(), takers, kind != CollectiveKind::all_reduce);
  const Phases phases = phases_of(kind);
  // What a node's members on a rail own, and all nodes'.
  const auto owned = [&](std::size_t node, int rail) {
    const int members = static_cast<int>(by_node[node].size());
    const int beside = (members - rail - 1) / rails;
    return shares.of(true) + beside * shares.of(false);
  };
  for (int rail = 0; rail < rails; ++rail) {
    double whole = 0;
    for (std::size_t node = 0; node < by_node.size(); ++node) whole += owned(node, rail);
    for (std::size_t node = 0; node < by_node.size(); ++node) {
      const std::vector<int>& members = by_node[node];
      const std::size_t next = (node + 1) % by_node.size();
      if (by_node.size() > 1) {
        if (phases.gathers)
          loads.send(members[rail], by_node[next][rail], whole - owned(next, rail));
        if (phases.reduces)
          loads.send(members[rail], by_node[next][rail], whole - owned(node, rail));
      }
      for (int local = 0; local < static_cast<int>(members.size()); ++local) {
        if (local == rail) continue;
        const int other = members[local];
        const double own = local % rails == rail ? shares.of(false) : 0;
        if (phases.gathers)
          loads.send(members[rail], other, whole - own), loads.send(other, members[rail], own);
        if (phases.reduces)
          loads.send(other, members[rail], whole - own), loads.send(members[rail], other, own);
      }
    }
  }
}

WirePeak peak_of(std::span<const MemberWire> members, ClassBytes MemberWire::*way,
                 std::span<const int> nodes) {
  WirePeak peak;
  std::map<int, double> by_node;
  for (std::size_t k = 0; k < members.size(); ++k) {
    const ClassBytes& bytes = members[k].*way;
    peak.intra = std::max(peak.intra, bytes.intra);
    peak.inter = std::max(peak.inter, bytes.inter);
    peak.node = std::max(peak.node, by_node[nodes[k]] += bytes.inter);
  }
  return peak;
}

// What the algorithms that libraries choose themselves amount to, and those that lack a kind.
Algorithm in_effect(CollectiveKind kind, Algorithm algorithm) {
  const bool library = algorithm == Algorithm::own || algorithm == Algorithm::native;
  const Algorithm wanted = library ? Algorithm::ring : algorithm;
  return has_steps(kind, wanted) ? wanted : Algorithm::direct;
}

}  // namespace

std::string_view name_of(LinkClass link) {
  switch (link) {
    case LinkClass::none:
      return "none";
    case LinkClass::intra:
      return "intra";
    case LinkClass::inter:
      return "inter";
    case LinkClass::mixed:
      return "mixed";
  }
  return "?";
}

LinkClass link_class(std::span<const int> nodes) {
  if (nodes.size() < 2) return LinkClass::none;
  const auto by_node = members_by_node(nodes);
  if (by_node.size() == 1) return LinkClass::intra;
  return by_node.size() == nodes.size() ? LinkClass::inter : LinkClass::mixed;
}

std::vector<MemberWire> wire_by_member(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                                       std::span<const int> nodes) {
  Loads loads(nodes);
  if (nodes.size() < 2) return loads.take();
  const auto size = static_cast<double>(bytes);
  switch (in_effect(kind, algorithm)) {
    case Algorithm::ring:
      add_ring(loads, kind, size);
      break;
    case Algorithm::halving_doubling:
      add_halving_doubling(loads, kind, size);
      break;
    case Algorithm::tree:
      add_tree(loads, kind, size);
      break;
    case Algorithm::two_level:
      add_two_level(loads, kind, size, nodes);
      break;
    default:
      add_direct(loads, kind, size);
  }
  return loads.take();
}

Wire wire_of(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
             std::span<const int> nodes) {
  const std::vector<MemberWire> members = wire_by_member(kind, algorithm, bytes, nodes);
  Wire wire{peak_of(members, &MemberWire::sent, nodes)};
  wire.received = peak_of(members, &MemberWire::received, nodes);
  for (const MemberWire& member : members) {
    wire.total_intra += member.sent.intra;
    wire.total_inter += member.sent.inter;
  }
  return wire;
}

WirePeak Wire::busier() const {
  return {std::max(intra, received.intra), std::max(inter, received.inter),
          std::max(node, received.node)};
}

std::optional<double> busbw_ceiling(CollectiveKind kind, Algorithm algorithm,
                                    std::span<const int> nodes, const Machine& machine) {
  if (nodes.size() < 2) return std::nullopt;
  constexpr std::int64_t bytes = 1 << 30;
  const WirePeak wire = wire_of(kind, algorithm, bytes, nodes).busier();
  const double seconds =
      std::max(wire.intra / machine.intra.gb_per_s, wire.inter / machine.inter.gb_per_s) * 1e-9;
  return busbw_factor(kind, static_cast<int>(nodes.size())) * static_cast<double>(bytes) / seconds;
}

// Bytes read and written by all, for a size S of the collective over n threads: all_reduce n S + n
// S, all_gather and all_to_all the same, reduce_scatter n S + S, broadcast 2 (n - 1) S, reduce n S
// + S, gather and scatter 2 S, shift 2 n S.
std::optional<double> memory_ceiling(CollectiveKind kind, int members, double bytes_per_s) {
  if (members < 2) return std::nullopt;
  const double n = members;
  const double moved = [&] {
    switch (kind) {
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::reduce:
        return n + 1;
      case CollectiveKind::broadcast:
        return 2 * (n - 1);
      case CollectiveKind::gather:
      case CollectiveKind::scatter:
        return 2.0;
      default:
        return 2 * n;
    }
  }();
  return busbw_factor(kind, members) * bytes_per_s / moved;
}

}  // namespace mb
