#include "bench/doctor/node.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <sstream>

#include "bench/report/system_files.h"

namespace mb {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNvidia = 0x10de;
constexpr std::int64_t kDisplay = 0x03;  // base class of PCI, in the upper of three bytes

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// "0000:17:00.0": domain, bus, device and function, but not "pci0000:16".
bool is_address(const std::string& name) {
  return name.size() >= 12 && name.find_first_not_of("0123456789abcdef:.") == std::string::npos &&
         std::count(name.begin(), name.end(), ':') == 2 && name.find('.') != std::string::npos;
}

PciDevice pci_device(const fs::path& link) {
  std::error_code error;
  const fs::path real = fs::canonical(link, error);
  PciDevice device{.address = real.filename()};
  for (const fs::path& part : real.parent_path())
    if (is_address(part)) device.path.push_back(part);
  device.numa_node = number_of(real / "numa_node");
  if (device.numa_node && *device.numa_node < 0) device.numa_node.reset();
  device.local_cores = line_of(real / "local_cpulist");
  return device;
}

std::optional<std::int64_t> bytes_of(const Fields& memory, const char* key) {
  const std::optional<std::string> text = first_of(memory, key);  // "24 kB"
  return text ? std::optional(std::stoll(*text) * 1024) : std::nullopt;
}

// The soft limit, fourth of "Max locked memory  65536  65536  bytes".
std::optional<std::string> locked_memory_of(const fs::path& root) {
  constexpr std::string_view name = "Max locked memory";
  for (const std::string& line : lines_of(root / "proc/self/limits")) {
    if (!line.starts_with(name)) continue;
    std::string soft;
    std::istringstream(line.substr(name.size())) >> soft;
    return soft;
  }
  return std::nullopt;
}

std::vector<PciDevice> gpus_of(const fs::path& root) {
  std::vector<PciDevice> gpus;
  for (const fs::path& link : entries(root / "sys/bus/pci/devices")) {
    if (number_of(link / "vendor") == kNvidia &&
        number_of(link / "class").value_or(0) >> 16 == kDisplay)
      gpus.push_back(pci_device(link));
  }
  return gpus;
}

std::vector<NetworkCard> cards_of(const fs::path& root) {
  std::vector<NetworkCard> cards;
  for (const fs::path& folder : entries(root / "sys/class/infiniband")) {
    const fs::path port = folder / "ports/1";
    cards.push_back(
        {.name = folder.filename(),
         .rate = line_of(port / "rate"),
         .active = line_of(port / "state").value_or("").find("ACTIVE") != std::string::npos,
         .pci = pci_device(folder / "device")});
  }
  return cards;
}

}  // namespace

NodeFacts read_node(const fs::path& root) {
  const fs::path proc = root / "proc", sys = root / "sys";
  const Fields memory = fields_of(proc / "meminfo"), status = fields_of(proc / "self/status");
  const Fields parameters = fields_of(proc / "driver/nvidia/params");
  NodeFacts node{.host = line_of(proc / "sys/kernel/hostname").value_or("unknown"),
                 .kernel = line_of(proc / "sys/kernel/osrelease").value_or("unknown")};
  if (const auto online = line_of(sys / "devices/system/cpu/online"))
    node.online_cores = cpus_of_list(*online);
  if (const auto allowed = first_of(status, "Cpus_allowed_list"))
    node.usable_cores = cpus_of_list(*allowed);
  node.quota_cores = cpu_quota(root);
  node.numa_nodes = numbered_entries(sys / "devices/system/node", "node");
  node.memory_bytes = bytes_of(memory, "MemTotal");
  node.available_bytes = bytes_of(memory, "MemAvailable");
  if (struct statvfs room{}; statvfs((root / "dev/shm").c_str(), &room) == 0)
    node.shared_memory_bytes = static_cast<std::int64_t>(room.f_blocks * room.f_frsize);
  node.huge_pages = chosen_of(sys / "kernel/mm/transparent_hugepage/enabled");
  node.governor = line_of(sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor");
  node.clock_source = line_of(sys / "devices/system/clocksource/clocksource0/current_clocksource");
  node.locked_memory = locked_memory_of(root);
  node.driver = gpu_driver(root);
  if (const auto restricted = first_of(parameters, "RmProfilingAdminOnly"))
    node.profiling_admin_only = *restricted != "0";
  std::error_code error;
  node.peer_memory = fs::exists(sys / "module/nvidia_peermem", error);
  node.gpus = gpus_of(root);
  node.cards = cards_of(root);
  return node;
}

}  // namespace mb
