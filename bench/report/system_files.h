// Facts that the kernel gives as files, below a folder that stands for "/".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mb {

// First line of a file; nothing if it cannot be read or is empty.
std::optional<std::string> line_of(const std::filesystem::path& path);
// The first line as a number, 0x... included; nothing if it is none.
std::optional<std::int64_t> number_of(const std::filesystem::path& path);
// The choice in brackets of a line such as "always [madvise] never", else the line.
std::optional<std::string> chosen_of(const std::filesystem::path& path);

std::vector<std::string> lines_of(const std::filesystem::path& path);
// "key : value" lines, as of /proc/cpuinfo, /proc/meminfo and /proc/self/status.
using Fields = std::multimap<std::string, std::string>;
Fields fields_of(const std::filesystem::path& path);
std::optional<std::string> first_of(const Fields& fields, const std::string& key);

// How many entries of a folder are `prefix` and a number; 0 where there is no such folder.
std::int64_t numbered_entries(const std::filesystem::path& folder, std::string_view prefix);

// CPUs of a list such as "0-3,8"; 0 of an empty one.
std::int64_t cpus_of_list(std::string_view list);
// CPUs' worth of time that a control group allows (cpu.max); nothing where it sets no limit.
std::optional<double> cpu_quota(const std::filesystem::path& root);
// Bytes of memory of the machine, as far as a control group lets one have them (memory.max); 0
// where it does not say.
double usable_memory_bytes(const std::filesystem::path& root);
// Version of the GPU driver that is loaded, such as "550.54.15".
std::optional<std::string> gpu_driver(const std::filesystem::path& root);
// Instances that GPUs are divided into; nothing where there is no GPU.
std::optional<std::int64_t> mig_instances(const std::filesystem::path& root);
// What GPUs and InfiniBand cards are and next to which memory they hang, a line each, and how far
// the nodes of memory are apart; sorted, without names, numbers or addresses of devices. Empty
// where there is one node and neither.
std::string topology_text(const std::filesystem::path& root);
// The image that we run in: Podman tells it, of Docker's it is only known that there is one.
std::optional<std::string> container_image(const std::filesystem::path& root);
// How often cores were slowed down for their heat since the machine started; nothing where it is
// not counted, as on virtual machines.
std::optional<std::int64_t> throttle_events(const std::filesystem::path& root);
// The hottest sensor; nothing where there is none.
std::optional<double> temperature_celsius(const std::filesystem::path& root);

}  // namespace mb
