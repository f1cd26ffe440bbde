#include "bench/doctor/affinity.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mb {
namespace {

// Bridges that two devices have in common.
std::size_t shared_bridges(const PciDevice& a, const PciDevice& b) {
  const auto ends = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
  return static_cast<std::size_t>(ends.first - a.path.begin());
}

Distance distance_of(const PciDevice& gpu, const PciDevice& card) {
  if (shared_bridges(gpu, card) > 0) return Distance::bridge;
  if (!gpu.numa_node || !card.numa_node) return Distance::unknown;
  return gpu.numa_node == card.numa_node ? Distance::node : Distance::system;
}

}  // namespace

std::string_view name_of(Distance distance) {
  switch (distance) {
    case Distance::bridge:
      return "same PCI bridge";
    case Distance::node:
      return "same NUMA node";
    case Distance::system:
      return "across NUMA nodes";
    case Distance::unknown:
      break;
  }
  return "distance not told";
}

std::vector<Affinity> affinities(const std::vector<PciDevice>& gpus,
                                 const std::vector<NetworkCard>& cards) {
  std::vector<Affinity> all;
  std::map<std::string, int> taken;
  for (const PciDevice& gpu : gpus) {
    Affinity affinity{.numa_node = gpu.numa_node, .cores = gpu.local_cores};
    const auto rank = [&](const NetworkCard& card) {  // the smallest is the nearest
      return std::tuple(!card.active, distance_of(gpu, card.pci),
                        -static_cast<std::int64_t>(shared_bridges(gpu, card.pci)),
                        taken[card.name]);
    };
    const auto nearest =
        std::min_element(cards.begin(), cards.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    if (nearest != cards.end()) {
      affinity.card = nearest->name;
      affinity.distance = distance_of(gpu, nearest->pci);
      ++taken[nearest->name];
    }
    all.push_back(affinity);
  }
  return all;
}

}  // namespace mb
