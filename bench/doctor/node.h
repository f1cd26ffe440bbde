// What the kernel tells of a node that ranks are to run on, from its files alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mb {

// A device on the PCI bus.
struct PciDevice {
  std::string address;                     // "0000:17:00.0"
  std::vector<std::string> path;           // addresses of the bridges above it, the host's first
  std::optional<std::int64_t> numa_node;   // nothing where the firmware does not say
  std::optional<std::string> local_cores;  // "0-31,64-95"
};

struct NetworkCard {
  std::string name;                 // "mlx5_0"
  std::optional<std::string> rate;  // "400 Gb/sec (4X NDR)" of its first port
  bool active = false;              // the state of its first port
  PciDevice pci;
};

struct NodeFacts {
  std::string host, kernel;
  std::optional<std::int64_t> online_cores, usable_cores;  // usable: by this process
  std::optional<double> quota_cores;                       // of its control group
  std::int64_t numa_nodes = 0;
  std::optional<std::int64_t> memory_bytes, available_bytes;
  std::optional<std::int64_t> shared_memory_bytes;  // what /dev/shm may hold
  std::optional<std::string> huge_pages, governor, clock_source;
  std::optional<std::string> locked_memory;  // "unlimited" or bytes, the soft limit

  std::optional<std::string> driver;  // of NVIDIA, as loaded: "550.54.15"
  std::optional<bool> profiling_admin_only;
  bool peer_memory = false;        // nvidia_peermem is loaded
  std::vector<PciDevice> gpus;     // of NVIDIA, whether there is a driver or not, by address
  std::vector<NetworkCard> cards;  // RDMA, by name
};

// `root` stands for "/".
NodeFacts read_node(const std::filesystem::path& root = "/");

}  // namespace mb
