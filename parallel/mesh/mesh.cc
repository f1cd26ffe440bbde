#include "parallel/mesh/mesh.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <set>
#include <utility>

#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::array kAllAxes = {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::rdp, Axis::pp};
// As meshes are written, from outside in.
constexpr std::array kTextOrder = {Axis::rdp, Axis::dp, Axis::pp, Axis::cp, Axis::ep, Axis::tp};
// Places in the global batch.
constexpr Group kBatchShares{group_of(Axis::ep).axes | group_of(Axis::dp).axes |
                             group_of(Axis::rdp).axes};
constexpr std::int64_t kMostRanks = 1 << 20;

int index_of(Axis axis) { return static_cast<int>(axis); }
bool spans(Group group, Axis axis) { return (group.axes >> index_of(axis) & 1) != 0; }

Axis axis_named(std::string_view name, std::string_view subject, std::string_view whole) {
  for (const Axis axis : kAllAxes) {
    if (name_of(axis) == name) return axis;
  }
  throw Error(cat(subject, " '", whole, "': unknown axis '", name,
                  "'; known are rdp, dp, pp, cp, ep and tp"));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The size in an axis' part of a mesh, "4" of "pp4".
int size_in(std::string_view digits, std::string_view part, std::string_view whole) {
  int size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  require(error == std::errc() && end == digits.data() + digits.size() && size >= 1, "mesh '",
          whole, "': '", part, "' wants a size of at least 1 after the axis, as in dp2.pp4.tp2");
  return size;
}

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::tp:
      return "tp";
    case Axis::cp:
      return "cp";
    case Axis::ep:
      return "ep";
    case Axis::dp:
      return "dp";
    case Axis::rdp:
      return "rdp";
    case Axis::pp:
      return "pp";
  }
  return "?";
}

std::string name_of(Group group) {
  if (group.part > 0) {
    const int part = group.part;
    group.part = 0;
    return cat(name_of(group), '/', part);
  }
  if (group == kWorld) return "world";
  if (group == kEnds) return "embedding";
  std::string text;
  for (const Axis axis : kTextOrder) {
    if (spans(group, axis)) text += cat(text.empty() ? "" : ".", name_of(axis));
  }
  if (text.empty()) return "self";
  return group.ends ? text + ".ends" : text;
}

Mesh Mesh::parse(std::string_view text) {
  Mesh mesh;
  if (text == "1") return mesh;
  unsigned seen = 0;
  std::int64_t world = 1;
  for (const std::string_view part : split(text, '.')) {
    const std::size_t letters = std::min(part.find_first_of("0123456789-+"), part.size());
    require(letters > 0, "mesh '", text, "': '", part,
            "' names no axis; write axes with sizes, as in dp2.pp4.tp2, or 1 for one rank");
    const Axis axis = axis_named(part.substr(0, letters), "mesh", text);
    require((seen >> index_of(axis) & 1) == 0, "mesh '", text, "': ", name_of(axis),
            " is there twice; give each axis once");
    seen |= 1u << index_of(axis);
    mesh.sizes_[index_of(axis)] = size_in(part.substr(letters), part, text);
    world *= mesh.size(axis);
    require(world <= kMostRanks, "mesh '", text, "': more than ", kMostRanks, " ranks");
  }
  return mesh;
}

void Mesh::set_order(std::string_view text) {
  std::vector<Axis> order;
  const char separator = text.find(',') == std::string_view::npos ? '-' : ',';
  for (const std::string_view part : split(text, separator)) {
    const Axis axis = axis_named(part, "order", text);
    require(std::find(order.begin(), order.end(), axis) == order.end(), "order '", text,
            "': ", part, " is there twice; give each axis once");
    order.push_back(axis);
  }
  for (const Axis axis : kAllAxes) {
    if (std::find(order.begin(), order.end(), axis) != order.end()) continue;
    require(size(axis) == 1, "order '", text, "' leaves out ", name_of(axis), ", which has ",
            size(axis), " ranks; name every axis of the mesh, fastest first");
    order.push_back(axis);
  }
  std::copy(order.begin(), order.end(), order_.begin());
}

void Mesh::set_ranks_per_node(int ranks) {
  require(ranks >= 1, "ranks per node ", ranks, ": give a whole number of at least 1");
  ranks_per_node_ = ranks;
}

void Mesh::set_nodes(std::vector<int> node_of_rank) {
  require(static_cast<int>(node_of_rank.size()) == world(), "nodes of ", node_of_rank.size(),
          " ranks for mesh ", to_text(), "; give a node for each of its ", world(), " ranks");
  nodes_ = std::move(node_of_rank);
}

int Mesh::world() const {
  int ranks = 1;
  for (const int size : sizes_) ranks *= size;
  return ranks;
}

std::string Mesh::order() const {
  std::string text;
  for (const Axis axis : order_) text += cat(text.empty() ? "" : "-", name_of(axis));
  return text;
}

std::string Mesh::to_text() const {
  std::string text;
  for (const Axis axis : kTextOrder) {
    if (size(axis) > 1) text += cat(text.empty() ? "" : ".", name_of(axis), size(axis));
  }
  return text.empty() ? "1" : text;
}

Coordinates Mesh::coordinates(int rank) const {
  assert(rank >= 0 && rank < world());
  Coordinates place{};
  for (const Axis axis : order_) {
    place[index_of(axis)] = rank % size(axis);
    rank /= size(axis);
  }
  return place;
}

int Mesh::rank_of(const Coordinates& coordinates) const {
  int rank = 0, stride = 1;
  for (const Axis axis : order_) {
    assert(coordinates[index_of(axis)] >= 0 && coordinates[index_of(axis)] < size(axis));
    rank += coordinates[index_of(axis)] * stride;
    stride *= size(axis);
  }
  return rank;
}

Group Mesh::spanned(Group group) const {
  for (int axis = 0; axis < kAxes; ++axis) {
    if (sizes_[axis] == 1) group.axes &= static_cast<std::uint8_t>(~(1u << axis));
  }
  return group;
}

int Mesh::group_size(Group group) const {
  int ranks = 1;
  for (const Axis axis : kAllAxes) {
    if (!spans(group, axis)) continue;
    ranks *= axis == Axis::pp && group.ends ? std::min(size(axis), 2) : size(axis);
  }
  if (group.part == 0) return ranks;
  const int part = group.part;
  require(ranks % part == 0, "mesh ", to_text(), ": group ", name_of(group), " has ", ranks,
          " ranks, which parts of ", part, " do not divide");
  require(!spans(group, Axis::pp), "mesh ", to_text(), ": group ", name_of(group),
          " spans stages and cannot be cut");
  return part;
}

std::vector<int> Mesh::members(Group group, int rank) const {
  if (group.part > 0) {
    const int part = group_size(group);
    group.part = 0;
    const std::vector<int> all = members(group, rank);
    const auto run = all.begin() + index_in(group, rank) / part * part;
    return {run, run + part};
  }
  Coordinates first = coordinates(rank);
  const int last_stage = size(Axis::pp) - 1;
  const int stage = first[index_of(Axis::pp)];
  if (group.ends && stage != 0 && stage != last_stage) return {};
  for (const Axis axis : kAllAxes) {
    if (spans(group, axis)) first[index_of(axis)] = 0;
  }
  std::vector<int> ranks = {rank_of(first)};
  for (const Axis axis : kAllAxes) {
    if (!spans(group, axis) || size(axis) == 1) continue;
    Coordinates next = first;
    next[index_of(axis)] = 1;
    const int stride = rank_of(next) - rank_of(first);
    const bool ends = axis == Axis::pp && group.ends;
    const std::size_t inner = ranks.size();
    for (int place = ends ? last_stage : 1; place < size(axis); ++place) {
      for (std::size_t i = 0; i < inner; ++i) ranks.push_back(ranks[i] + place * stride);
    }
  }
  return ranks;
}

int Mesh::index_in(Group group, int rank) const {
  const std::vector<int> ranks = members(group, rank);
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  require(place != ranks.end(), "mesh ", to_text(), ": rank ", rank, " is in no group ",
          name_of(group));
  return static_cast<int>(place - ranks.begin());
}

std::vector<std::vector<int>> Mesh::groups(Group group) const {
  const int part = group_size(group);
  const bool cut = group.part > 0;
  group.part = 0;
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world(); ++rank) {
    const Coordinates place = coordinates(rank);
    const bool first = std::all_of(kAllAxes.begin(), kAllAxes.end(), [&](Axis axis) {
      return !spans(group, axis) || place[index_of(axis)] == 0;
    });
    std::vector<int> ranks = first ? members(group, rank) : std::vector<int>{};
    if (cut) {
      for (auto run = ranks.begin(); run != ranks.end(); run += part)
        all.emplace_back(run, run + part);
    } else if (!ranks.empty()) {
      all.push_back(std::move(ranks));
    }
  }
  if (cut) std::sort(all.begin(), all.end());
  return all;
}

int Mesh::data_size() const { return group_size(kBatchShares); }

int Mesh::data_index(int rank) const { return index_in(kBatchShares, rank); }

std::vector<int> Mesh::nodes_of(std::span<const int> ranks) const {
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(node_of(rank));
  return nodes;
}

int Mesh::node_count() const {
  if (nodes_.empty()) return (world() + ranks_per_node_ - 1) / ranks_per_node_;
  return static_cast<int>(std::set<int>(nodes_.begin(), nodes_.end()).size());
}

bool Mesh::crosses_nodes(Group group) const {
  const std::vector<std::vector<int>> all = groups(group);
  return std::any_of(all.begin(), all.end(), [&](const std::vector<int>& ranks) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return node_of(rank) != node_of(ranks.front()); });
  });
}

}  // namespace mb
