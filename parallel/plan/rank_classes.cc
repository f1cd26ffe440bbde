#include "parallel/plan/rank_classes.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <map>
#include <numeric>
#include <unordered_map>

#include "workloads/base/error.h"

namespace mb {
namespace {

std::vector<Group> groups_in(const Plan& plan) {
  std::vector<Group> groups;
  Group last;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      const auto* collective = std::get_if<Collective>(&instruction.action);
      if (!collective || (collective->group == last && !groups.empty())) continue;
      last = collective->group;
      if (std::find(groups.begin(), groups.end(), last) == groups.end()) groups.push_back(last);
    }
  }
  return groups;
}

int stride_of(const Mesh& mesh, Axis axis) {
  Coordinates one{};
  if (mesh.size(axis) == 1) return 0;
  one[static_cast<int>(axis)] = 1;
  return mesh.rank_of(one);
}

// The first member of each rank's group; kNone for ranks that belong to none.
std::vector<int> first_members(const Mesh& mesh, Group group) {
  std::array<int, kAxes> strides;
  for (int axis = 0; axis < kAxes; ++axis) strides[axis] = stride_of(mesh, static_cast<Axis>(axis));
  const auto spans = [&](int axis) { return (group.axes >> axis & 1) != 0; };
  const int part = group.part > 0 ? mesh.group_size(group) : 0;
  std::vector<int> first(mesh.world());
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const Coordinates place = mesh.coordinates(rank);
    const int stage = place[static_cast<int>(Axis::pp)];
    if (group.ends && stage != 0 && stage != mesh.size(Axis::pp) - 1) {
      first[rank] = kNone;
      continue;
    }
    int base = rank, index = 0, scale = 1;
    for (int axis = 0; axis < kAxes; ++axis) {
      if (!spans(axis)) continue;
      base -= place[axis] * strides[axis];
      index += place[axis] * scale;
      scale *= mesh.size(static_cast<Axis>(axis));
    }
    int begin = part > 0 ? index / part * part : 0;
    for (int axis = 0; axis < kAxes && begin > 0; ++axis) {
      if (!spans(axis)) continue;
      base += begin % mesh.size(static_cast<Axis>(axis)) * strides[axis];
      begin /= mesh.size(static_cast<Axis>(axis));
    }
    first[rank] = base;
  }
  return first;
}

double factor(const std::map<int, double>& factors, int key) {
  const auto found = factors.find(key);
  return found == factors.end() ? 1.0 : found->second;
}

// By first member: how many times longer than others a group takes, for its slowest NIC.
std::vector<double> slower_groups(const Mesh& mesh, const std::vector<int>& first,
                                  const Imbalance& imbalance) {
  std::vector<double> slower(mesh.world(), 1.0);
  if (imbalance.nics.empty()) return slower;
  std::vector<bool> crosses(mesh.world());
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (first[rank] != kNone && mesh.node_of(rank) != mesh.node_of(first[rank]))
      crosses[first[rank]] = true;
  }
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (first[rank] == kNone || !crosses[first[rank]]) continue;
    double& of_group = slower[first[rank]];
    of_group = std::max(of_group, factor(imbalance.nics, mesh.node_of(rank)));
  }
  return slower;
}

double slower_message(const Mesh& mesh, const Imbalance& imbalance, int from, int to) {
  const int a = mesh.node_of(from), b = mesh.node_of(to);
  return a == b ? 1.0 : std::max(factor(imbalance.nics, a), factor(imbalance.nics, b));
}

int with_stage(const Mesh& mesh, int rank, int stage) {
  return rank + (stage - mesh.coordinate(rank, Axis::pp)) * stride_of(mesh, Axis::pp);
}

// SplitMix64's finalizer (Steele et al., Fast splittable pseudorandom number generators, 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return mixed(a + 0x9e3779b97f4a7c15u + mixed(b));
}

using Colours = std::vector<std::uint64_t>;

// Numbers in the order of ranks.
std::vector<int> numbered(const Colours& colours, int& count) {
  std::unordered_map<std::uint64_t, int> numbers;
  std::vector<int> of_rank(colours.size());
  for (std::size_t rank = 0; rank < colours.size(); ++rank)
    of_rank[rank] =
        numbers.try_emplace(colours[rank], static_cast<int>(numbers.size())).first->second;
  count = static_cast<int>(numbers.size());
  return of_rank;
}

// Stage, own speed, and how slow messages to each stage are.
Colours first_colours(const Mesh& mesh, const Imbalance& imbalance) {
  Colours colours(mesh.world());
  const int stages = mesh.size(Axis::pp);
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int own = mesh.coordinate(rank, Axis::pp);
    colours[rank] = mixed(own, std::bit_cast<std::uint64_t>(factor(imbalance.ranks, rank)));
    for (int stage = 0; stage < stages && !imbalance.nics.empty(); ++stage) {
      const double slower = slower_message(mesh, imbalance, rank, with_stage(mesh, rank, stage));
      colours[rank] = mixed(colours[rank], std::bit_cast<std::uint64_t>(slower));
    }
  }
  return colours;
}

}  // namespace

int RankClasses::index_of(Group group) const {
  const auto found = std::find(groups_.begin(), groups_.end(), group);
  assert(found != groups_.end());
  return static_cast<int>(found - groups_.begin());
}

RankClasses RankClasses::by_stage(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  const int stages = mesh.size(Axis::pp), each = mesh.world() / stages;
  const int stride = std::max(1, stride_of(mesh, Axis::pp));
  RankClasses classes;
  classes.groups_ = groups_in(plan);
  std::vector<int> all(stages);
  std::iota(all.begin(), all.end(), 0);
  for (int stage = 0; stage < stages; ++stage) {
    Class c{.stage = stage, .first_rank = stage * stride, .ranks = each, .peers = all};
    for (const Group group : classes.groups_) {
      ClassGroup& of_group = c.groups.emplace_back();
      const int ranks = mesh.group_size(group);
      const bool pipeline = (group.axes & group_of(Axis::pp).axes) != 0 && stages > 1;
      const bool end = stage == 0 || stage == stages - 1;
      if (!pipeline) {
        if (!group.ends || end) of_group.shares = {{stage, ranks}};
      } else if (!group.ends) {
        for (int s = 0; s < stages; ++s) of_group.shares.push_back({s, ranks / stages});
      } else if (end) {
        of_group.shares = {{0, ranks / 2}, {stages - 1, ranks / 2}};
      }
    }
    classes.classes_.push_back(std::move(c));
  }
  classes.of_rank_.resize(mesh.world());
  auto next = classes.of_rank_.begin();
  while (next != classes.of_rank_.end()) {
    for (int stage = 0; stage < stages; ++stage)
      next = std::fill_n(next, stages == 1 ? mesh.world() : stride, stage);
  }
  return classes;
}

RankClasses RankClasses::of_colours(const Plan& plan, const Imbalance& imbalance,
                                    std::vector<int> of_rank) {
  const Mesh& mesh = plan.mesh;
  const int stages = mesh.size(Axis::pp);
  RankClasses classes;
  classes.groups_ = groups_in(plan);
  classes.of_rank_ = std::move(of_rank);
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int own = classes.of_rank_[rank];
    if (own < classes.count()) {
      ++classes.classes_[own].ranks;
      continue;
    }
    Class c{.stage = mesh.coordinate(rank, Axis::pp),
            .first_rank = rank,
            .slower = factor(imbalance.ranks, rank)};
    for (int stage = 0; stage < stages; ++stage) {
      const int peer = with_stage(mesh, rank, stage);
      c.peers.push_back(classes.of_rank_[peer]);
      if (!imbalance.nics.empty())
        c.messages_slower.push_back(slower_message(mesh, imbalance, rank, peer));
    }
    classes.classes_.push_back(std::move(c));
  }
  for (const Group group : classes.groups_) {
    const std::vector<int> first = first_members(mesh, group);
    const std::vector<double> slower = slower_groups(mesh, first, imbalance);
    // Members by class, of the groups of the classes' first ranks alone.
    std::unordered_map<int, std::map<int, int>> shares;
    for (const Class& c : classes.classes_) {
      if (first[c.first_rank] != kNone) shares[first[c.first_rank]];
    }
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const auto found = first[rank] == kNone ? shares.end() : shares.find(first[rank]);
      if (found != shares.end()) ++found->second[classes.of_rank_[rank]];
    }
    for (Class& c : classes.classes_) {
      ClassGroup& of_group = c.groups.emplace_back();
      if (first[c.first_rank] == kNone) continue;
      of_group.slower = slower[first[c.first_rank]];
      for (const auto& [of, ranks] : shares[first[c.first_rank]])
        of_group.shares.push_back({of, ranks});
    }
  }
  return classes;
}

RankClasses RankClasses::folded(const Plan& plan, const Imbalance& imbalance) {
  if (imbalance.empty()) return by_stage(plan);
  const Mesh& mesh = plan.mesh;
  struct Meeting {
    std::vector<int> first;
    std::vector<double> slower;
  };
  std::vector<Meeting> meetings;
  std::vector<Group> groups = groups_in(plan);
  if (mesh.size(Axis::pp) > 1) groups.push_back(group_of(Axis::pp));  // messages
  for (const Group group : groups) {
    std::vector<int> first = first_members(mesh, group);
    std::vector<double> slower = slower_groups(mesh, first, imbalance);
    meetings.push_back({std::move(first), std::move(slower)});
  }
  Colours colours = first_colours(mesh, imbalance), sums(mesh.world());
  int before = 0, count = 0;
  std::vector<int> of_rank = numbered(colours, count);
  while (count > before) {
    before = count;
    Colours next = colours;
    for (const Meeting& meeting : meetings) {
      std::fill(sums.begin(), sums.end(), 0);
      for (int rank = 0; rank < mesh.world(); ++rank) {
        if (meeting.first[rank] != kNone) sums[meeting.first[rank]] += mixed(colours[rank]);
      }
      for (int rank = 0; rank < mesh.world(); ++rank) {
        const int first = meeting.first[rank];
        if (first == kNone) continue;
        next[rank] = mixed(next[rank],
                           mixed(sums[first], std::bit_cast<std::uint64_t>(meeting.slower[first])));
      }
    }
    colours = std::move(next);
    of_rank = numbered(colours, count);
  }
  return of_colours(plan, imbalance, std::move(of_rank));
}

RankClasses RankClasses::unfolded(const Plan& plan, const Imbalance& imbalance) {
  std::vector<int> of_rank(plan.mesh.world());
  std::iota(of_rank.begin(), of_rank.end(), 0);
  return of_colours(plan, imbalance, std::move(of_rank));
}

}  // namespace mb
