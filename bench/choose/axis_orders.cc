#include "bench/choose/axis_orders.h"

#include <algorithm>
#include <string>

#include "parallel/cost/network.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::array<std::int64_t, 3> kBytes = {64 << 10, 4 << 20, 256 << 20};

bool no_better(const std::vector<double>& one, const std::vector<double>& other) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i] < other[i]) return false;
  }
  return true;
}

std::vector<Axis> axes_of(const Mesh& mesh) {
  std::vector<Axis> axes;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (mesh.size(static_cast<Axis>(axis)) > 1) axes.push_back(static_cast<Axis>(axis));
  }
  return axes;
}

Mesh in_order(const Mesh& mesh, const std::vector<Axis>& axes) {
  Mesh ordered = mesh;
  std::string order;
  for (const Axis axis : axes) order += cat(order.empty() ? "" : ",", name_of(axis));
  ordered.set_order(order);
  return ordered;
}

}  // namespace

const AxisOrders::Seconds& AxisOrders::seconds(CollectiveKind kind, const GroupSpread& spread) {
  const auto [known, is_new] =
      known_.try_emplace({kind,
                          {spread.ranks, spread.nodes, spread.on_a_node, spread.groups_on_a_node,
                           spread.crosses_leaves}});
  for (std::size_t i = 0; is_new && i < kBytes.size(); ++i)
    known->second[i] = group_seconds(kind, kBytes[i], spread, machine_);
  return known->second;
}

// What each axis does, as a way of saying which links it has.
std::vector<double> AxisOrders::links_of(const Mesh& mesh) {
  std::vector<double> all;
  const auto add = [&](Group group, std::initializer_list<CollectiveKind> kinds) {
    const Group spanned = mesh.spanned(group);
    if (spanned.axes == 0) return;
    const GroupSpread spread = spread_of(mesh, spanned, machine_);
    for (const CollectiveKind kind : kinds) {
      const Seconds& each = seconds(kind, spread);
      all.insert(all.end(), each.begin(), each.end());
    }
  };
  using enum CollectiveKind;
  add(group_of(Axis::tp), {all_reduce});
  add(group_of(Axis::cp), {shift, all_to_all});
  add(group_of(Axis::ep), {all_to_all});
  add(kReplicas, {all_reduce});
  for (const Group owners : {kDataOwners, kExpertOwners}) add(owners, {all_reduce, all_gather});
  const int stages = mesh.size(Axis::pp);
  if (stages == 1) return all;
  const Network network(mesh, machine_);
  for (const std::int64_t bytes : kBytes) {
    for (int stage = 0; stage < stages; ++stage) {
      all.push_back(network.seconds(stage, (stage + 1) % stages, bytes));
      all.push_back(network.seconds(stage, (stage + stages - 1) % stages, bytes));
    }
  }
  return all;
}

std::vector<Mesh> AxisOrders::best_of(const Mesh& mesh) {
  std::vector<Axis> axes = axes_of(mesh);  // ascending, which is the usual order
  if (axes.size() < 2 || mesh.world() <= mesh.ranks_per_node()) return {mesh};
  std::vector<std::pair<std::vector<double>, Mesh>> kept;
  do {
    const Mesh ordered = std::is_sorted(axes.begin(), axes.end()) ? mesh : in_order(mesh, axes);
    std::vector<double> links = links_of(ordered);
    const auto beaten = [&](const auto& other) { return no_better(links, other.first); };
    if (std::any_of(kept.begin(), kept.end(), beaten)) {
      ++dominated_;
      continue;
    }
    dominated_ += static_cast<std::int64_t>(
        std::erase_if(kept, [&](const auto& other) { return no_better(other.first, links); }));
    kept.emplace_back(std::move(links), ordered);
  } while (std::next_permutation(axes.begin(), axes.end()));
  std::vector<Mesh> meshes;
  for (auto& [links, ordered] : kept) meshes.push_back(std::move(ordered));
  return meshes;
}

}  // namespace mb
