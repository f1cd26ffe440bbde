// Which cores and which network card are nearest to a GPU, by PCI bridges and NUMA nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/doctor/node.h"

namespace mb {

// How a message gets from a GPU to a card; nvidia-smi topo says PIX or PXB, PHB or NODE, and SYS.
enum class Distance : std::uint8_t { bridge, node, system, unknown };
std::string_view name_of(Distance distance);  // "same PCI bridge", "same NUMA node", ...

struct Affinity {
  std::optional<std::int64_t> numa_node;
  std::optional<std::string> cores, card;
  Distance distance = Distance::unknown;  // to the card
};
// Of equally near cards, those that are up first, then the one that fewest of the GPUs before
// `gpu` got.
std::vector<Affinity> affinities(const std::vector<PciDevice>& gpus,
                                 const std::vector<NetworkCard>& cards);

}  // namespace mb
