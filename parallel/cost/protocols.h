// Algorithms and protocols of NCCL between nodes.
#pragma once

#include <span>
#include <string_view>

namespace mb {

// Latency of a hop as a share of that of Simple, which machines give, and the share of the
// bandwidth that carries data.
struct Protocol {
  std::string_view name;
  double net_ring, net_tree, link, bandwidth, base_us;
};
std::span<const Protocol> protocols();

bool is_algorithm(std::string_view name);  // "auto", "ring", "tree"
bool is_protocol(std::string_view name);   // "auto" or that of one

}  // namespace mb
