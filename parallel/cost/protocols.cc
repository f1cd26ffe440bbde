#include "parallel/cost/protocols.h"

#include <algorithm>
#include <array>

namespace mb {

// From the table of hop latencies in NCCL's tuning.cc (us, LL, LL128, Simple: net ring 2.7, 4.0,
// 14; net tree 5.0, 8.5, 14; NVLink 0.6, 1.9, 3.4; before the first hop 6.6, 14, 8.4).
std::span<const Protocol> protocols() {
  static constexpr std::array<Protocol, 3> table = {{
      {"ll", 2.7 / 14, 5.0 / 14, 0.6 / 3.4, 0.5, 6.6},            // a flag with every 4 bytes
      {"ll128", 4.0 / 14, 8.5 / 14, 1.9 / 3.4, 120.0 / 128, 14},  // 8 of 128 bytes
      {"simple", 1, 1, 1, 1, 8.4},
  }};
  return table;
}

bool is_algorithm(std::string_view name) {
  return name == "auto" || name == "ring" || name == "tree";
}

bool is_protocol(std::string_view name) {
  return name == "auto" || std::any_of(protocols().begin(), protocols().end(),
                                       [&](const Protocol& p) { return p.name == name; });
}

}  // namespace mb
