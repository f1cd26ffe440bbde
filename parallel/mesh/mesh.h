// A mesh of ranks, "dp2.pp4.tp2": coordinates, process groups, rank order, placement on nodes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mb {

// Axes of parallelism: tensor, context, expert, data, replicated data (the replicas of a group over
// which state is divided), pipeline.
enum class Axis : std::uint8_t { tp, cp, ep, dp, rdp, pp };
inline constexpr int kAxes = 6;
std::string_view name_of(Axis axis);

// The ranks that one collective spans: all that share their coordinates on every other axis. With
// `ends`, only the first and the last pipeline stage of them (tied embeddings). With `part`, they
// are cut into runs of so many members that follow each other, a group each (key and value heads
// that neighbouring tensor ranks share).
struct Group {
  std::uint8_t axes = 0;  // bit i is Axis(i)
  bool ends = false;
  std::uint16_t part = 0;  // 0: not cut
  auto operator<=>(const Group&) const = default;
};
constexpr Group group_of(Axis axis) {
  return {static_cast<std::uint8_t>(1u << static_cast<int>(axis))};
}
inline constexpr Group kWorld{(1u << kAxes) - 1};
inline constexpr Group kEnds{1u << static_cast<int>(Axis::pp), true};
// Ranks that sum the gradient of a dense parameter and share its optimizer state; those of an
// expert's parameter; the replicas of both.
inline constexpr Group kDataOwners{group_of(Axis::dp).axes | group_of(Axis::cp).axes |
                                   group_of(Axis::ep).axes};
inline constexpr Group kExpertOwners{group_of(Axis::dp).axes | group_of(Axis::cp).axes};
inline constexpr Group kReplicas = group_of(Axis::rdp);
// "tp", "dp.pp", "world", "embedding" (the ends of the pipeline), "tp/2" (cut into parts of 2).
std::string name_of(Group group);

using Coordinates = std::array<int, kAxes>;  // by Axis

class Mesh {
 public:
  Mesh() { sizes_.fill(1); }

  // "dp2.pp4.tp2", any order, an axis left out has size 1; "1" is one rank. Throws Error for
  // anything else.
  static Mesh parse(std::string_view text);

  // Order of axes over ranks, fastest first, as Megatron-LM writes it; "tp,dp,pp" is the same as
  // "tp-dp-pp". Default "tp-cp-ep-dp-rdp-pp". Throws Error unless it names every axis that has more
  // than one rank, each once.
  void set_order(std::string_view order);
  // Ranks follow each other over nodes of so many; default 8.
  void set_ranks_per_node(int ranks);
  // The node of each rank, by any numbers; nodes may be uneven. Throws Error unless there is one
  // for every rank.
  void set_nodes(std::vector<int> node_of_rank);

  int size(Axis axis) const { return sizes_[static_cast<int>(axis)]; }
  int world() const;
  int ranks_per_node() const { return ranks_per_node_; }    // where there is no list
  const std::vector<int>& nodes() const { return nodes_; }  // the list; empty if there is none
  std::string order() const;
  // Sizes above 1 as rdp, dp, pp, cp, ep, tp; "1" if there is none.
  std::string to_text() const;

  Coordinates coordinates(int rank) const;
  int coordinate(int rank, Axis axis) const { return coordinates(rank)[static_cast<int>(axis)]; }
  int rank_of(const Coordinates& coordinates) const;

  // Number of ranks in every such group; 1 for a group that spans nothing. Like all that follow,
  // throws Error for a `part` that does not divide the group or cuts one over stages.
  int group_size(Group group) const;
  // The same ranks by the axes alone that have more than one.
  Group spanned(Group group) const;
  // Members in the order of their coordinates, last axis slowest; `rank` is one of them. With
  // `ends`, a rank between the ends belongs to none: empty.
  std::vector<int> members(Group group, int rank) const;
  // Place of `rank` among its members. Throws Error where it belongs to none.
  int index_in(Group group, int rank) const;
  // All groups of this kind, each once, ordered by first member.
  std::vector<std::vector<int>> groups(Group group) const;
  // The shares that the global batch is divided into: one for each of rdp x dp x ep, rdp slowest.
  int data_size() const;
  int data_index(int rank) const;
  int node_of(int rank) const { return nodes_.empty() ? rank / ranks_per_node_ : nodes_[rank]; }
  std::vector<int> nodes_of(std::span<const int> ranks) const;
  int node_count() const;
  // True if some group of this kind has members on two nodes.
  bool crosses_nodes(Group group) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::array<int, kAxes> sizes_;
  std::array<Axis, kAxes> order_ = {Axis::tp, Axis::cp,  Axis::ep,
                                    Axis::dp, Axis::rdp, Axis::pp};  // fastest first
  int ranks_per_node_ = 8;
  std::vector<int> nodes_;
};

}  // namespace mb
