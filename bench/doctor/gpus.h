// What NVIDIA's libraries tell of GPUs. They are looked for when asked, so that a build without
// CUDA tells the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mb {

struct GpuFacts {
  std::string name, address;  // address: as on the PCI bus, "0000:17:00.0"
  std::int64_t memory_bytes = 0, free_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  std::optional<bool> ecc, persistence;
  std::optional<int> clock_mhz, max_clock_mhz, max_memory_clock_mhz;  // now, and the most
  std::optional<int> links;                                           // NVLinks that are up
  std::vector<bool> peers;  // whether it reaches the memory of each of the devices
};

struct GpuLibraryFacts {
  bool driver_library = false;         // libcuda.so.1 was found
  std::optional<std::string> failure;  // why it then tells no devices
  std::optional<int> cuda;     // the newest CUDA that the driver runs, 1000 major + 10 minor
  std::vector<GpuFacts> gpus;  // in CUDA's order
  bool nvml = false;           // tells clocks, ECC, persistence, links
  std::optional<int> nccl;     // version code of the library, 22809 of 2.28.9
};

// Names or paths that dlopen takes.
struct GpuLibraries {
  std::string cuda = "libcuda.so.1", nvml = "libnvidia-ml.so.1", nccl = "libnccl.so.2";
};
GpuLibraryFacts read_gpus(const GpuLibraries& libraries = {});

}  // namespace mb
