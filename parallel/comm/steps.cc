#include "parallel/comm/steps.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "workloads/base/error.h"

namespace mb {
namespace {

using Steps = std::vector<Step>;

void append(Steps& steps, Steps more) {
  std::move(more.begin(), more.end(), std::back_inserter(steps));
}

// Ascending, those that touch as one.
Runs joined(Runs runs) {
  std::erase_if(runs, [](const Run& run) { return run.begin == run.end; });
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  Runs out;
  for (const Run& run : runs) {
    if (!out.empty() && out.back().end == run.begin) {
      out.back().end = run.end;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

Runs all_of(std::span<const Runs> blocks) {
  Runs runs;
  for (const Runs& block : blocks) runs.insert(runs.end(), block.begin(), block.end());
  return joined(std::move(runs));
}

// Of all parts but those of one block.
Runs without(std::span<const Runs> blocks, std::size_t left_out) {
  Runs runs;
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    if (k != left_out) runs.insert(runs.end(), blocks[k].begin(), blocks[k].end());
  }
  return joined(std::move(runs));
}

// A step whose messages are there only if they hold something.
void add(Steps& steps, int to, Runs sent, int from, Runs received) {
  Step step;
  if (!sent.empty()) step.to = to, step.sent = std::move(sent);
  if (!received.empty()) step.from = from, step.received = std::move(received);
  if (step.to >= 0 || step.from >= 0) steps.push_back(std::move(step));
}

// Where everybody receives every part but its own exactly once, the way back adds them all up.
Steps reversed(Steps steps, bool reduces) {
  std::reverse(steps.begin(), steps.end());
  for (Step& step : steps) {
    std::swap(step.to, step.from);
    std::swap(step.sent, step.received);
    step.reduces = reduces;
  }
  return steps;
}

// What each member has, part k alone.
std::vector<Runs> one_part_each(int members) {
  std::vector<Runs> blocks;
  for (int k = 0; k < members; ++k) blocks.push_back({{k, k + 1}});
  return blocks;
}

// Everybody's block to everybody, each straight to the others.
Steps direct_gather(std::span<const Runs> blocks, int me) {
  const int n = static_cast<int>(blocks.size());
  Steps steps;
  for (int d = 1; d < n; ++d) {
    const int to = (me + d) % n, from = (me + n - d) % n;
    add(steps, to, blocks[me], from, blocks[from]);
  }
  return steps;
}

// The same round a ring of `members`, of which this is number `place`; `way` is 1 or -1.
Steps ring_gather(std::span<const int> members, std::span<const Runs> blocks, int place, int way) {
  const int n = static_cast<int>(members.size());
  const auto round = [n](int at) { return (at % n + n) % n; };
  Steps steps;
  for (int s = 0; s + 1 < n; ++s) {
    add(steps, members[round(place + way)], blocks[round(place - way * s)],
        members[round(place - way)], blocks[round(place - way * (s + 1))]);
  }
  return steps;
}

// By recursive doubling among as many members as the largest power of two; of the first pairs, the
// even one takes part for both.
Steps doubling_gather(std::span<const Runs> blocks, int me) {
  const int n = static_cast<int>(blocks.size());
  const int takers = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int pairs = n - takers;
  const auto first_of = [&](int taker) { return taker < pairs ? 2 * taker : taker + pairs; };
  const auto blocks_of = [&](int taker, int count) {
    const int begin = first_of(taker);
    const int end = taker + count == takers ? n : first_of(taker + count);
    return all_of(blocks.subspan(begin, end - begin));
  };
  Steps steps;
  const bool paired = me < 2 * pairs;
  if (paired && me % 2 == 1) {
    add(steps, me - 1, blocks[me], -1, {});
    add(steps, -1, {}, me - 1, without(blocks, me));
    return steps;
  }
  if (paired) add(steps, -1, {}, me + 1, blocks[me + 1]);
  const int taker = paired ? me / 2 : me - pairs;
  for (int d = 1; d < takers; d *= 2) {
    const int peer = taker ^ d;
    add(steps, first_of(peer), blocks_of(taker & ~(d - 1), d), first_of(peer),
        blocks_of(peer & ~(d - 1), d));
  }
  if (paired) add(steps, me + 1, without(blocks, me + 1), -1, {});
  return steps;
}

// From members[0] to all of them along a binomial tree; `blocks` are what each has to get for
// itself and those below it (scatter), or the whole for each (broadcast).
Steps tree_spread(std::span<const int> members, std::span<const Runs> blocks, int place,
                  bool whole) {
  const int n = static_cast<int>(members.size());
  const auto below = [&](int top, int span) {
    return whole ? blocks[0] : all_of(blocks.subspan(top, std::min(span, n - top)));
  };
  Steps steps;
  int span = 1;
  while (span < n && (place & span) == 0) span *= 2;
  if (place > 0) add(steps, -1, {}, members[place - span], below(place, span));
  for (span /= 2; span > 0; span /= 2) {
    if (place + span < n) add(steps, members[place + span], below(place + span, span), -1, {});
  }
  return steps;
}

// Members from the root on, round.
std::vector<int> from_root(int n, int root) {
  std::vector<int> members(n);
  std::iota(members.begin(), members.end(), 0);
  std::rotate(members.begin(), members.begin() + root, members.end());
  return members;
}

int place_in(std::span<const int> members, int member) {
  return static_cast<int>(std::find(members.begin(), members.end(), member) - members.begin());
}

Steps tree_broadcast(std::span<const int> members, int member) {
  const std::vector<Runs> blocks(members.size(), Runs{{0, 1}});
  return tree_spread(members, blocks, place_in(members, member), true);
}

Steps tree_scatter(int n, int root, int member) {
  const std::vector<int> members = from_root(n, root);
  std::vector<Runs> blocks;
  for (int k : members) blocks.push_back({{k, k + 1}});
  return tree_spread(members, blocks, place_in(members, member), false);
}

Steps direct_scatter(int n, int root, int member, bool whole) {
  const auto part = [&](int k) { return whole ? Runs{{0, 1}} : Runs{{k, k + 1}}; };
  Steps steps;
  if (member != root) {
    add(steps, -1, {}, root, part(member));
    return steps;
  }
  for (int k : from_root(n, root)) {
    if (k != root) add(steps, k, part(k), -1, {});
  }
  return steps;
}

// Chunks go from the root along the ring; a member passes one on while the next comes in.
Steps chain_broadcast(int n, int root, int member, int chunks) {
  const int place = (member + n - root) % n;
  const int next = (member + 1) % n, before = (member + n - 1) % n;
  Steps steps;
  for (int c = 0; c <= chunks; ++c) {
    const bool comes = place > 0 && c < chunks, goes = place + 1 < n && c > 0;
    add(steps, next, goes ? Runs{{c - 1, c}} : Runs{}, before, comes ? Runs{{c, c + 1}} : Runs{});
  }
  return steps;
}

// Members by node, in the order in which nodes appear.
class Nodes {
 public:
  explicit Nodes(std::span<const int> node_of) : place_(node_of.size()), local_(node_of.size()) {
    std::map<int, int> seen;
    for (std::size_t k = 0; k < node_of.size(); ++k) {
      const auto [entry, is_new] = seen.emplace(node_of[k], static_cast<int>(members_.size()));
      if (is_new) members_.emplace_back();
      place_[k] = entry->second;
      local_[k] = static_cast<int>(members_[entry->second].size());
      members_[entry->second].push_back(static_cast<int>(k));
    }
    for (const auto& members : members_)
      rails_ = std::min(rails_, static_cast<int>(members.size()));
  }
  int count() const { return static_cast<int>(members_.size()); }
  int rails() const { return rails_; }  // members of the smallest
  const std::vector<int>& of(int node) const { return members_[node]; }
  int place(int member) const { return place_[member]; }
  int local(int member) const { return local_[member]; }

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> place_, local_;
  int rails_ = 1 << 30;
};

// What a node's members with local index j, j + rails, ... own.
Runs rail_block(const Nodes& nodes, std::span<const Runs> blocks, int node, int rail) {
  Runs runs;
  for (int member : nodes.of(node)) {
    if (nodes.local(member) % nodes.rails() != rail) continue;
    runs.insert(runs.end(), blocks[member].begin(), blocks[member].end());
  }
  return joined(std::move(runs));
}

// Blocks go to the node's member on their rail, round between the nodes, and to all in the node.
Steps two_level_gather(const Nodes& nodes, std::span<const Runs> blocks, int me, int way) {
  const std::vector<int>& home = nodes.of(nodes.place(me));
  const int local = nodes.local(me), rails = nodes.rails(), here = static_cast<int>(home.size());
  Steps steps;
  if (local >= rails) add(steps, home[local % rails], blocks[me], -1, {});
  for (int other = local + rails; local < rails && other < here; other += rails)
    add(steps, -1, {}, home[other], blocks[home[other]]);
  if (local < rails) {
    std::vector<int> ring;
    std::vector<Runs> of_node;
    for (int node = 0; node < nodes.count(); ++node) {
      ring.push_back(nodes.of(node)[local]);
      of_node.push_back(rail_block(nodes, blocks, node, local));
    }
    append(steps, ring_gather(ring, of_node, nodes.place(me), way));
  }
  // What `receiver` gets of the rail: all but what is its own.
  const auto of_rail = [&](int rail, int receiver) {
    Runs runs;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const int member = static_cast<int>(k);
      if (member == receiver || nodes.local(member) % rails != rail) continue;
      runs.insert(runs.end(), blocks[k].begin(), blocks[k].end());
    }
    return joined(std::move(runs));
  };
  for (int d = 1; d < here; ++d) {
    const int to = (local + d) % here, from = (local + here - d) % here;
    add(steps, home[to], local < rails ? of_rail(local, home[to]) : Runs{}, home[from],
        from < rails ? of_rail(from, me) : Runs{});
  }
  return steps;
}

// From the root to a member of each node, and from there to the node.
Steps two_level_broadcast(const Nodes& nodes, int root, int member) {
  std::vector<int> leaders = {root};
  for (int d = 1; d < nodes.count(); ++d)
    leaders.push_back(nodes.of((nodes.place(root) + d) % nodes.count()).front());
  std::vector<int> home = nodes.of(nodes.place(member));
  const auto leader = std::find_first_of(home.begin(), home.end(), leaders.begin(), leaders.end());
  std::iter_swap(home.begin(), leader);
  Steps steps;
  if (home.front() == member) steps = tree_broadcast(leaders, member);
  append(steps, tree_broadcast(home, member));
  return steps;
}

// Owners of the parts of an all_reduce: those who take part in the exchange share it equally.
std::vector<Runs> shares(Algorithm algorithm, std::span<const int> node_of, int& parts) {
  const int n = static_cast<int>(node_of.size());
  std::vector<Runs> blocks(n);
  if (algorithm == Algorithm::halving_doubling) {
    parts = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int pairs = n - parts;
    for (int p = 0; p < parts; ++p) blocks[p < pairs ? 2 * p : p + pairs] = {{p, p + 1}};
    return blocks;
  }
  if (algorithm != Algorithm::two_level) {
    parts = n;
    return one_part_each(n);
  }
  const Nodes nodes(node_of);
  parts = nodes.rails() * nodes.count();
  for (int node = 0; node < nodes.count(); ++node) {
    for (int rail = 0; rail < nodes.rails(); ++rail) {
      const int part = rail * nodes.count() + node;
      blocks[nodes.of(node)[rail]] = {{part, part + 1}};
    }
  }
  return blocks;
}

Steps gather_blocks(Algorithm algorithm, std::span<const int> node_of, std::span<const Runs> blocks,
                    int member, int way = 1) {
  switch (algorithm) {
    case Algorithm::direct:
      return direct_gather(blocks, member);
    case Algorithm::ring:
      return ring_gather(from_root(static_cast<int>(blocks.size()), 0), blocks, member, way);
    case Algorithm::halving_doubling:
      return doubling_gather(blocks, member);
    default:
      return two_level_gather(Nodes(node_of), blocks, member, way);
  }
}

// Sums of the blocks, each to its owner. Rings go round the same way as in gather_blocks.
Steps sum_blocks(Algorithm algorithm, std::span<const int> node_of, std::span<const Runs> blocks,
                 int member) {
  return reversed(gather_blocks(algorithm, node_of, blocks, member, -1), true);
}

Steps spread_whole(Algorithm algorithm, std::span<const int> node_of, int root, int member,
                   int chunks) {
  const int n = static_cast<int>(node_of.size());
  switch (algorithm) {
    case Algorithm::direct:
      return direct_scatter(n, root, member, true);
    case Algorithm::ring:
      return chain_broadcast(n, root, member, chunks);
    case Algorithm::tree:
      return tree_broadcast(from_root(n, root), member);
    default:
      return two_level_broadcast(Nodes(node_of), root, member);
  }
}

}  // namespace

int chunks_of(std::int64_t bytes, int members) {
  const double pipes = static_cast<double>(bytes) / kPipeBytes;
  return std::max(1, static_cast<int>(std::lround(std::sqrt(std::max(0, members - 2) * pipes))));
}

bool has_steps(CollectiveKind kind, Algorithm algorithm) {
  const bool direct = algorithm == Algorithm::direct, ring = algorithm == Algorithm::ring,
             halving = algorithm == Algorithm::halving_doubling,
             tree = algorithm == Algorithm::tree, two_level = algorithm == Algorithm::two_level;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return direct || ring || halving || tree || two_level;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return direct || ring || halving || two_level;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return direct || ring || tree || two_level;
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return direct || tree;
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_to_all_v:
    case CollectiveKind::shift:
      return false;
  }
  return false;
}

StepList steps_of(CollectiveKind kind, Algorithm algorithm, int member, std::span<const int> nodes,
                  int root, int chunks) {
  require(has_steps(kind, algorithm), name_of(kind), " has no steps by ", name_of(algorithm));
  const int n = static_cast<int>(nodes.size());
  StepList list{.parts = n};
  if (kind == CollectiveKind::all_reduce && algorithm == Algorithm::tree) {
    list.parts = 1;
    list.steps = reversed(tree_broadcast(from_root(n, 0), member), true);
    append(list.steps, tree_broadcast(from_root(n, 0), member));
    return list;
  }
  switch (kind) {
    case CollectiveKind::all_reduce: {
      const std::vector<Runs> blocks = shares(algorithm, nodes, list.parts);
      list.steps = sum_blocks(algorithm, nodes, blocks, member);
      append(list.steps, gather_blocks(algorithm, nodes, blocks, member));
      return list;
    }
    case CollectiveKind::all_gather:
      list.steps = gather_blocks(algorithm, nodes, one_part_each(n), member);
      return list;
    case CollectiveKind::reduce_scatter:
      list.steps = sum_blocks(algorithm, nodes, one_part_each(n), member);
      return list;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      list.parts = algorithm == Algorithm::ring ? chunks : 1;
      list.steps = spread_whole(algorithm, nodes, root, member, chunks);
      if (kind == CollectiveKind::reduce) list.steps = reversed(std::move(list.steps), true);
      return list;
    default:
      list.steps = algorithm == Algorithm::tree ? tree_scatter(n, root, member)
                                                : direct_scatter(n, root, member, false);
      if (kind == CollectiveKind::gather) list.steps = reversed(std::move(list.steps), false);
      return list;
  }
}

}  // namespace mb
