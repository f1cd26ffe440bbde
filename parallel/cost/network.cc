#include "parallel/cost/network.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/comm/steps.h"
#include "parallel/cost/collective_cost.h"
#include "parallel/cost/curves.h"
#include "parallel/cost/protocols.h"

namespace mb {
namespace {

int phases_of(CollectiveKind kind) { return kind == CollectiveKind::all_reduce ? 2 : 1; }

bool is_ring(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_gather ||
         kind == CollectiveKind::reduce_scatter;
}

double between_nodes(CollectiveKind kind, double bytes, const GroupSpread& spread,
                     const Machine& machine) {
  const double n = spread.ranks, nodes = spread.nodes;
  const double nic = nic_share_gb_per_s(spread, machine) * 1e9;
  if (kind == CollectiveKind::shift)
    return machine.inter.latency_us * 1e-6 + bytes * spread.on_a_node / nic;
  if (!is_ring(kind)) {
    // Of what a member sends to all others, or passes on, the part that leaves its node.
    const bool exchange =
        kind == CollectiveKind::all_to_all || kind == CollectiveKind::all_to_all_v;
    const double away = exchange ? (n - spread.on_a_node) / n : 1.0;
    return std::ceil(std::log2(nodes)) * machine.inter.latency_us * 1e-6 +
           away * bytes * spread.on_a_node / nic;
  }
  const double phases = phases_of(kind);
  const double wire = phases * (n - 1) / n * bytes /
                      std::min(nic, spread.on_a_node > 1 ? machine.intra.gb_per_s * 1e9 : nic);
  double best = INFINITY;
  // NCCL has trees for all-reduces alone, and forces nothing on the others.
  const bool tree_only = machine.algorithm == "tree" && kind == CollectiveKind::all_reduce;
  for (const Protocol& p : protocols()) {
    if (machine.protocol != "auto" && machine.protocol != p.name) continue;
    const double net = machine.inter.latency_us * 1e-6, link = machine.intra.latency_us * 1e-6;
    const double base = 1e-6 * p.base_us;
    const double ring =
        base + phases * ((nodes - 1) * net * p.net_ring + (n - nodes) * link * p.link);
    if (!tree_only) best = std::min(best, ring + wire / p.bandwidth);
    if (machine.algorithm == "ring") continue;
    if (kind != CollectiveKind::all_reduce) continue;
    const double tree = base + 2 * (std::ceil(std::log2(nodes)) * net * p.net_tree +
                                    (n / nodes - 1) * link * p.link);
    best = std::min(best, tree + wire / p.bandwidth);
  }
  return best;
}

}  // namespace

double nic_share_gb_per_s(const GroupSpread& spread, const Machine& machine) {
  const double all = machine.nics_per_node * machine.inter.gb_per_s * machine.nic_efficiency;
  const double driven = spread.on_a_node * machine.inter.gb_per_s * machine.nic_efficiency *
                        std::max(1.0, 1.0 * machine.nics_per_node / machine.ranks_per_node);
  const double share = std::min(all / spread.groups_on_a_node, driven);
  return spread.crosses_leaves ? share / machine.oversubscription : share;
}

double group_seconds(CollectiveKind kind, std::int64_t bytes, const GroupSpread& spread,
                     const Machine& machine) {
  if (spread.ranks < 2) return 0;
  const bool own = machine.curves == "measured";
  if (spread.nodes > 1) {
    const auto size = static_cast<double>(bytes);
    if (own && spread.groups_on_a_node == 1 && !spread.crosses_leaves) {
      if (const auto measured =
              measured_between_nodes(machine.measured, kind, spread.ranks, spread.nodes, size))
        return *measured;
    }
    return between_nodes(kind, size, spread, machine);
  }
  if (const auto measured = own ? curve_seconds(machine.measured.curves, kind, spread.ranks, bytes)
                                : curve_seconds(machine.curves, kind, spread.ranks, bytes))
    return *measured;
  return collective_seconds(kind, bytes, spread.ranks, machine.intra);
}

double group_seconds(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                     std::span<const int> nodes, const GroupSpread& spread,
                     const Machine& machine) {
  if (!has_steps(kind, algorithm)) return group_seconds(kind, bytes, spread, machine);
  GroupSpread member = spread, node = spread;
  member.on_a_node = 1, node.on_a_node = std::max(machine.ranks_per_node, machine.nics_per_node);
  const Link inter{.latency_us = machine.inter.latency_us,
                   .gb_per_s = nic_share_gb_per_s(member, machine)};
  return collective_seconds(kind, algorithm, bytes, nodes, machine.intra, inter,
                            nic_share_gb_per_s(node, machine));
}

int parts_of_message(const Mesh& mesh, const Stack& stack, bool rows_divided) {
  return stack.scatter_sends && !rows_divided ? mesh.size(Axis::tp) : 1;
}

Network::Network(const Mesh& mesh, const Machine& machine)
    : mesh_(mesh),
      machine_(machine),
      stages_(mesh.size(Axis::pp)),
      leaving_(messages_leaving(mesh)) {}

std::optional<double> Network::measured(CollectiveKind kind, const GroupSpread& spread,
                                        std::int64_t bytes) const {
  if (machine_.comm_times == "none" || spread.crosses_leaves) return std::nullopt;
  for (const CommTime& time : machine_.measured.comm) {
    if (time.kind == kind && time.bytes == bytes && time.ranks == spread.ranks &&
        time.nodes == spread.nodes && time.groups_on_a_node == spread.groups_on_a_node)
      return 1e-6 * time.us;
  }
  return std::nullopt;
}

double Network::seconds(CollectiveKind kind, Group group, std::int64_t bytes) const {
  const auto [known, is_new] = seconds_.try_emplace({kind, group, bytes});
  if (is_new) {
    const GroupSpread spread = spread_of(mesh_, group, machine_);
    const auto time = measured(kind, spread, bytes);
    known->second = time ? *time : group_seconds(kind, bytes, spread, machine_);
  }
  return known->second;
}

double Network::seconds(int from, int to, std::int64_t bytes, int parts) const {
  if (parts > 1)
    return seconds(from, to, bytes / parts, 1) +
           seconds(CollectiveKind::all_gather, group_of(Axis::tp), bytes);
  const int leaving = leaving_[from * stages_ + to];
  const GroupSpread spread = message_spread(leaving);
  if (const auto time = measured(CollectiveKind::shift, spread, bytes)) return *time;
  if (leaving == 0)
    return machine_.intra.latency_us * 1e-6 +
           static_cast<double>(bytes) / (machine_.intra.gb_per_s * 1e9);
  return machine_.inter.latency_us * 1e-6 +
         static_cast<double>(bytes) / (nic_share_gb_per_s(spread, machine_) * 1e9);
}

}  // namespace mb
