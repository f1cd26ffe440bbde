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

}  // namespace mb
