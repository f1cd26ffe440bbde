// Keys of the ranks of a case, the same for whatever they do: for a C with mesh, ranks_per_node,
// nodes, link, mode, machine_name and machine.
#pragma once

#include <string>
#include <string_view>

#include "bench/cli/case.h"
#include "bench/cli/key.h"
#include "bench/cli/key_values.h"

namespace mb {

template <class C>
Key<C> mesh_key() {
  return {"mesh", "dp2.pp2.tp2", "ranks along each axis; 1 is one rank",
          [](C& c, std::string_view v) { c.mesh = Mesh::parse(v); },
          [](const C& c) { return c.mesh.to_text(); }};
}

template <class C>
Key<C> order_key() {
  return {"order", "tp-cp-ep-dp-rdp-pp | tp,dp,pp", "order of axes over ranks, fastest first",
          [](C& c, std::string_view v) {
            require(!v.empty(), "order=: give axes, fastest first, as in order=tp-dp-pp");
            c.mesh.set_order(v);
          },
          [](const C& c) { return c.mesh.order(); }};
}

template <class C>
Key<C> ranks_per_node_key() {
  return {"ranks_per_node", "N",
          "ranks that follow each other on a node; 0: all are on one, with mode=mpi on their hosts "
          "(mode=sim: "
          "machine.ranks_per_node)",
          [](C& c, std::string_view v) {
            c.ranks_per_node = static_cast<int>(whole("ranks_per_node", v, 0));
          },
          [](const C& c) { return cat(c.ranks_per_node); }};
}

template <class C>
Key<C> nodes_key() {
  return {"nodes", "0,0,1,1", "the node of each rank, instead of so many on each; may be uneven",
          [](C& c, std::string_view v) {
            c.nodes.clear();
            for (const std::string& part : split_at(v, ','))
              c.nodes.push_back(static_cast<int>(whole("nodes", part, 0)));
          },
          [](const C& c) { return list_text(c.nodes); }};
}

template <class C>
Key<C> link_key() {
  return {"link", "none | 'intra:4GB/s,2us;inter:0.5GB/s,20us'",
          "mode=threads: bandwidth and latency that links within and between nodes are slowed down "
          "to, for each rank and direction; inter:0.5GB/s/node: for all ranks of a node together "
          "(mode=sim: machine.link_gb_per_s and the like)",
          [](C& c, std::string_view v) {
            c.link = v == "none" ? std::nullopt : std::optional(parse_link_shape(v, "link"));
          },
          [](const C& c) { return c.link ? to_text(*c.link) : std::string("none"); }};
}

template <class C>
Key<C> mode_key() {
  return {"mode", "threads | mpi | cuda+threads | cuda+mpi | nccl+threads | nccl+mpi | sim",
          "ranks as threads of this process, or as processes that mpirun or srun has started; with "
          "cuda+ each on one of the machine's GPUs, in turn, and communication through memory of "
          "the host; with nccl+ each on a GPU of its own, and communication by NCCL; sim: virtual "
          "time on `machine`",
          [](C& c, std::string_view v) { c.mode = choice<Mode>("mode", v, modes()); },
          [](const C& c) { return std::string(name_of(c.mode)); }};
}

template <class C>
Key<C> machine_key(std::string_view help) {
  return {"machine", "NAME | @FILE.json", help,
          [](C& c, std::string_view v) {
            c.machine_name = v;
            c.machine =
                v.starts_with('@')
                    ? machine_from_json(read_file(std::string(v.substr(1)), "machine"), v.substr(1))
                    : find_machine(v);
          },
          [](const C& c) { return c.machine_name; }};
}

// Nodes are given in one way: by a list, else by the machine where there is one, else by the case.
template <class C>
void place_ranks(C& c) {
  const bool sim = c.mode == Mode::sim;
  require(!sim || c.ranks_per_node == 0, "ranks_per_node=", c.ranks_per_node,
          ": mode=sim takes the machine's; give machine.ranks_per_node=", c.ranks_per_node);
  require(c.nodes.empty() || c.ranks_per_node == 0, "ranks_per_node=", c.ranks_per_node,
          " and nodes= both place ranks; give one of them");
  if (!c.nodes.empty()) c.mesh.set_nodes(c.nodes);
  const int per_node = sim ? c.machine.ranks_per_node : c.ranks_per_node;
  c.mesh.set_ranks_per_node(per_node > 0 ? per_node : c.mesh.world());
}

}  // namespace mb
