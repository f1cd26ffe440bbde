#include "bench/analysis/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "bench/analysis/matching.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::vector<std::string> axes_of(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (int a = 0; a < kAxes; ++a) {
    if (mesh.size(static_cast<Axis>(a)) > 1) axes.emplace_back(name_of(static_cast<Axis>(a)));
  }
  return axes;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += cat(text.empty() ? "" : ",", name);
  return text;
}

// By coordinates, in an order of their own: which node, numbered as they come.
std::vector<int> nodes_by_coordinates(const Mesh& mesh) {
  Mesh plain = Mesh::parse(mesh.to_text());
  std::vector<int> nodes;
  std::map<int, int> numbers;
  for (int place = 0; place < mesh.world(); ++place) {
    const int node = mesh.node_of(mesh.rank_of(plain.coordinates(place)));
    nodes.push_back(numbers.emplace(node, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

// One kind of operation of a stage, and how often.
using Operation = std::tuple<Group, CollectiveKind, std::int64_t>;

class Axes {
 public:
  Axes(const Plan& plan, const CostModel& cost)
      : plan_(plan), names_(comm_axes(plan)), axes_(names_.names.size()), pairs_(axes_.size()) {
    for (std::size_t a = 0; a < axes_.size(); ++a) axes_[a].axis = names_.names[a];
    for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage)
      add_stage(stage, cost);
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      std::set<Group> groups;
      for (const auto& [group, axis] : axis_of_) {
        if (axis == static_cast<int>(a)) groups.insert(group);
      }
      for (const Group group : groups) {
        for (const std::vector<int>& ranks : groups_of(group)) add_group(axes_[a], ranks);
      }
      for (const auto& [from, to] : pairs_[a]) add_group(axes_[a], std::vector{from, to});
    }
  }
  std::vector<AxisPlacement> take() { return std::move(axes_); }

 private:
  const std::vector<std::vector<int>>& groups_of(Group group) {
    const auto [entry, is_new] = groups_.try_emplace(group);
    if (is_new) entry->second = plan_.mesh.groups(group);
    return entry->second;
  }

  void add_group(AxisPlacement& axis, const std::vector<int>& ranks) const {
    const LinkClass link = link_class(plan_.mesh.nodes_of(ranks));
    axis.ranks = std::max(axis.ranks, static_cast<int>(ranks.size()));
    axis.link = std::max(axis.link, link);
    ++axis.groups;
    axis.crossing += link > LinkClass::intra;
  }

  void add_stage(int stage, const CostModel& cost) {
    const Program& program = plan_.programs[stage];
    std::vector<double> seconds(axes_.size());
    std::map<Operation, std::int64_t> operations;
    std::map<int, std::int64_t> sent;  // bytes by stage of the receiver
    int message_axis = -1;
    for (std::size_t id = 0; id < program.instructions.size(); ++id) {
      const int axis = names_.of[stage][id];
      if (axis < 0) continue;
      const Instruction& i = program.instructions[id];
      seconds[axis] += 1e-9 * static_cast<double>(cost.duration_ns(plan_, stage, i));
      if (const auto* collective = std::get_if<Collective>(&i.action)) {
        axis_of_[collective->group] = axis;
        ++operations[{collective->group, collective->kind, payload_bytes(program, i)}];
      } else if (const auto* send = std::get_if<Send>(&i.action)) {
        message_axis = axis;
        sent[send->to] += payload_bytes(program, i);
      }
    }
    for (const auto& [operation, count] : operations) add_operation(stage, operation, count);
    for (const auto& [to, bytes] : sent) add_messages(message_axis, stage, to, bytes);
    for (std::size_t a = 0; a < axes_.size(); ++a)
      axes_[a].seconds = std::max(axes_[a].seconds, seconds[a]);
  }

  // Of groups over several stages, the stage of the first member counts for all.
  void add_operation(int stage, const Operation& operation, std::int64_t count) {
    const auto& [group, kind, bytes] = operation;
    AxisPlacement& axis = axes_[axis_of_.at(group)];
    for (const std::vector<int>& ranks : groups_of(group)) {
      if (plan_.mesh.coordinate(ranks.front(), Axis::pp) != stage) continue;
      const Wire wire = wire_of(kind, Algorithm::own, bytes, plan_.mesh.nodes_of(ranks));
      axis.intra_bytes += static_cast<double>(count) * wire.total_intra;
      axis.inter_bytes += static_cast<double>(count) * wire.total_inter;
    }
  }

  void add_messages(int axis, int from, int to, std::int64_t bytes) {
    for (const std::vector<int>& pipeline : groups_of(group_of(Axis::pp))) {
      const int sender = pipeline[from], receiver = pipeline[to];
      const bool crosses = plan_.mesh.node_of(sender) != plan_.mesh.node_of(receiver);
      (crosses ? axes_[axis].inter_bytes : axes_[axis].intra_bytes) += static_cast<double>(bytes);
      pairs_[axis].insert(std::minmax(sender, receiver));
    }
  }

  const Plan& plan_;
  const CommAxes names_;
  std::vector<AxisPlacement> axes_;
  std::vector<std::set<std::pair<int, int>>> pairs_;  // by axis
  std::map<Group, int> axis_of_;
  std::map<Group, std::vector<std::vector<int>>> groups_;
};

}  // namespace

std::vector<OrderClass> distinct_orders(const Mesh& mesh) {
  std::vector<std::string> axes = axes_of(mesh);
  if (axes.empty()) return {{mesh, {""}}};
  std::sort(axes.begin(), axes.end());
  std::vector<OrderClass> classes;
  std::map<std::vector<int>, std::size_t> known;
  do {
    Mesh ordered = mesh;
    ordered.set_order(joined(axes));
    const auto [entry, is_new] = known.emplace(nodes_by_coordinates(ordered), classes.size());
    if (is_new) classes.push_back({ordered, {}});
    classes[entry->second].orders.push_back(joined(axes));
  } while (std::next_permutation(axes.begin(), axes.end()));
  return classes;
}

std::string order_text(const Mesh& mesh) {
  std::vector<std::string> axes;
  std::string rest = mesh.order() + '-';
  for (std::size_t end = rest.find('-'); end != std::string::npos; end = rest.find('-')) {
    const std::string axis = rest.substr(0, end);
    rest.erase(0, end + 1);
    const std::vector<std::string> known = axes_of(mesh);
    if (std::find(known.begin(), known.end(), axis) != known.end()) axes.push_back(axis);
  }
  return joined(axes);
}

std::vector<AxisPlacement> place_axes(const Plan& plan, const CostModel& cost) {
  return Axes(plan, cost).take();
}

}  // namespace mb
