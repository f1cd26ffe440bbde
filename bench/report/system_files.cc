#include "bench/report/system_files.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace mb {

namespace fs = std::filesystem;

std::optional<std::string> line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line) || line.empty()) return std::nullopt;
  return line;
}

std::optional<std::int64_t> number_of(const fs::path& path) {
  const std::optional<std::string> line = line_of(path);
  if (!line) return std::nullopt;
  const bool hex = line->starts_with("0x");
  std::int64_t value = 0;
  const char* end = line->data() + line->size();
  const auto [stop, error] =
      std::from_chars(line->data() + (hex ? 2 : 0), end, value, hex ? 16 : 10);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<std::string> chosen_of(const fs::path& path) {
  const std::optional<std::string> line = line_of(path);
  if (!line) return std::nullopt;
  const std::size_t open = line->find('['), close = line->find(']');
  if (open == std::string::npos || close == std::string::npos) return line;
  return line->substr(open + 1, close - open - 1);
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Fields fields_of(const fs::path& path) {
  Fields fields;
  for (const std::string& line : lines_of(path)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string key = line.substr(0, colon), value = line.substr(colon + 1);
    key.erase(key.find_last_not_of(" \t") + 1);
    value.erase(0, std::min(value.find_first_not_of(" \t"), value.size()));
    fields.emplace(std::move(key), std::move(value));
  }
  return fields;
}

std::optional<std::string> first_of(const Fields& fields, const std::string& key) {
  const auto found = fields.find(key);
  return found == fields.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t numbered_entries(const fs::path& folder, std::string_view prefix) {
  std::error_code error;
  std::int64_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    count += name.size() > prefix.size() && name.starts_with(prefix) &&
             name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
  }
  return error ? 0 : count;
}

std::int64_t cpus_of_list(std::string_view list) {
  std::istringstream parts{std::string(list)};
  std::int64_t count = 0;
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream range(part);
    std::int64_t first = 0, last = 0;
    char dash = 0;
    if (!(range >> first)) continue;
    count += range >> dash >> last ? last - first + 1 : 1;
  }
  return count;
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::ifstream quota(root / "sys/fs/cgroup/cpu.max");
  double limit = 0, period = 0;
  if (quota >> limit >> period && period > 0) return limit / period;
  return std::nullopt;
}

double usable_memory_bytes(const fs::path& root) {
  double bytes = 0;
  if (const auto total = first_of(fields_of(root / "proc/meminfo"), "MemTotal"))
    bytes = 1024 * std::strtod(total->c_str(), nullptr);  // "24576000 kB"
  // A control group without a limit says "max".
  const std::optional<std::int64_t> limit = number_of(root / "sys/fs/cgroup/memory.max");
  if (limit && *limit > 0) bytes = bytes > 0 ? std::min(bytes, 1.0 * *limit) : 1.0 * *limit;
  return bytes;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...": the first word of
// digits and dots.
std::optional<std::string> gpu_driver(const fs::path& root) {
  std::istringstream words(line_of(root / "proc/driver/nvidia/version").value_or(""));
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return std::nullopt;
}

std::optional<std::int64_t> mig_instances(const fs::path& root) {
  const fs::path driver = root / "proc/driver/nvidia";
  std::error_code error;
  std::int64_t count = 0;
  if (!fs::exists(driver / "gpus", error) || fs::is_empty(driver / "gpus", error))
    return std::nullopt;
  for (const auto& gpu : fs::directory_iterator(driver / "capabilities", error))
    count += numbered_entries(gpu.path() / "mig", "gi");
  return count;
}

std::string topology_text(const fs::path& root) {
  const auto known = [](const fs::path& file) { return line_of(file).value_or("?"); };
  std::vector<std::string> lines;
  std::error_code error;
  // The widest link, since an idle one is narrower.
  for (const auto& gpu : fs::directory_iterator(root / "proc/driver/nvidia/gpus", error)) {
    const fs::path device = root / "sys/bus/pci/devices" / gpu.path().filename();
    lines.push_back("gpu " +
                    first_of(fields_of(gpu.path() / "information"), "Model").value_or("?") +
                    ", node " + known(device / "numa_node") + ", " +
                    known(device / "max_link_speed") + " x " + known(device / "max_link_width"));
  }
  for (const auto& card : fs::directory_iterator(root / "sys/class/infiniband", error))
    for (const auto& port : fs::directory_iterator(card.path() / "ports", error))
      lines.push_back("card " + known(card.path() / "hca_type") + ", node " +
                      known(card.path() / "device/numa_node") + ", " + known(port.path() / "rate"));
  std::sort(lines.begin(), lines.end());
  const fs::path nodes = root / "sys/devices/system/node";
  const std::int64_t count = numbered_entries(nodes, "node");
  for (std::int64_t node = 0; count > 1 && node < count; ++node)
    lines.push_back("node " + known(nodes / ("node" + std::to_string(node)) / "distance"));
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::optional<std::string> container_image(const fs::path& root) {
  std::map<std::string, std::string> told;
  for (const std::string& line : lines_of(root / "run/.containerenv"))
    if (const std::size_t equals = line.find("=\""); equals != std::string::npos)
      told[line.substr(0, equals)] = line.substr(equals + 2, line.rfind('"') - equals - 2);
  for (const char* name : {"imageid", "image"})
    if (const auto found = told.find(name); found != told.end() && !found->second.empty())
      return found->second;
  std::error_code error;
  return fs::exists(root / ".dockerenv", error) ? std::optional<std::string>("docker")
                                                : std::nullopt;
}

std::optional<std::int64_t> throttle_events(const fs::path& root) {
  std::optional<std::int64_t> events;
  std::error_code error;
  for (const auto& cpu : fs::directory_iterator(root / "sys/devices/system/cpu", error))
    if (const auto count = number_of(cpu.path() / "thermal_throttle/core_throttle_count"))
      events = events.value_or(0) + *count;
  return events;
}

std::optional<double> temperature_celsius(const fs::path& root) {
  std::optional<double> hottest;
  std::error_code error;
  for (const auto& zone : fs::directory_iterator(root / "sys/class/thermal", error))
    if (const auto milli = number_of(zone.path() / "temp"))
      hottest = std::max(hottest.value_or(-273.15), 1e-3 * static_cast<double>(*milli));
  return hottest;
}

}  // namespace mb
