#include "bench/report/fingerprint.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "bench/report/build.h"
#include "bench/report/system_files.h"

extern char** environ;

namespace mb {
namespace {

namespace fs = std::filesystem;

template <class Value>
Fact fact_of(std::optional<Value> value) {
  return value ? Fact{std::move(*value)} : Fact{};
}

// Of the first core, now; while a case is idle this says little.
std::optional<double> clock_mhz(const Fields& cpu) {
  if (const auto khz = number_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"))
    return 1e-3 * static_cast<double>(*khz);
  const std::optional<std::string> mhz = first_of(cpu, "cpu MHz");
  return mhz ? std::optional(std::strtod(mhz->c_str(), nullptr)) : std::nullopt;
}

// CPUs that this process may run on, and the share of them that its control group allows.
std::int64_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return sysconf(_SC_NPROCESSORS_ONLN);
  std::int64_t cpus = CPU_COUNT(&set);
  if (const std::optional<double> quota = cpu_quota("/"))
    cpus = std::min(cpus, static_cast<std::int64_t>(std::ceil(*quota)));
  return cpus;
}

// "2 x NVIDIA H100", from the driver's files.
Fact gpus() {
  std::map<std::string, int> models;
  std::error_code error;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    if (const auto model = first_of(fields_of(gpu.path() / "information"), "Model"))
      ++models[*model];
  }
  std::string text;
  for (const auto& [name, count] : models)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text.empty() ? Fact{} : Fact{text};
}

Fact virtualized(const Fields& cpu) {
  const std::optional<std::string> flags = first_of(cpu, "flags");
  return flags ? Fact{flags->find(" hypervisor") != std::string::npos} : Fact{};
}

std::string text_of(const Fact& fact) {
  return std::visit(
      [](const auto& value) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return "?";
        else
          return fmt::format("{}", value);
      },
      fact);
}

std::map<std::string, Fact> hard_facts() {
  const auto cpu = fields_of("/proc/cpuinfo"), memory = fields_of("/proc/meminfo");
  std::set<std::string> sockets;
  for (auto [i, end] = cpu.equal_range("physical id"); i != end; ++i) sockets.insert(i->second);
  const std::int64_t nodes = numbered_entries("/sys/devices/system/node", "node");
  utsname system{};
  uname(&system);
  const BuildInfo build = build_info();
  std::string transport;
  for (const auto& [name, value] : published_environment())
    if (name.starts_with("NCCL_") || name.starts_with("UCX_") || name.starts_with("OMPI_MCA_"))
      transport += name + '=' + value + ' ';
  std::map<std::string, Fact> facts = {
      {"architecture", std::string(system.machine)},
      {"cpu_model", fact_of(first_of(cpu, "model name"))},
      {"usable_cpus", usable_cpus()},
      {"sockets", sockets.empty() ? Fact{} : Fact{static_cast<std::int64_t>(sockets.size())}},
      {"numa_nodes", nodes == 0 ? Fact{} : Fact{nodes}},
      {"ram_gib", Fact{}},
      {"gpus", gpus()},
      {"virtualized", virtualized(cpu)},
      {"compiler", build.compiler.substr(0, build.compiler.find('.'))},
      {"build_type", build.type},
      {"flags_hash", hash_text(build.flags)},
      {"transport", transport}};
  if (const auto instances = mig_instances("/")) facts["mig_instances"] = *instances;
  if (const std::string topology = topology_text("/"); !topology.empty())
    facts["topology"] = hash_text(topology);
  if (const auto driver = gpu_driver("/"))
    facts["gpu_driver"] = driver->substr(0, driver->find('.'));
  if (const auto total = memory.find("MemTotal"); total != memory.end())
    facts["ram_gib"] = static_cast<std::int64_t>(std::lround(std::stod(total->second) / 0x1p20));
  return facts;
}

std::map<std::string, Fact> soft_facts() {
  const auto cpu = fields_of("/proc/cpuinfo");
  utsname system{};
  uname(&system);
  double load = 0;
  const bool loaded = getloadavg(&load, 1) == 1;
  return {
      {"hostname", std::string(system.nodename)},
      {"kernel", std::string(system.release)},
      {"microcode", fact_of(first_of(cpu, "microcode"))},
      {"governor", fact_of(line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
      {"no_turbo", fact_of(line_of("/sys/devices/system/cpu/intel_pstate/no_turbo"))},
      {"smt", fact_of(line_of("/sys/devices/system/cpu/smt/control"))},
      {"transparent_huge_pages", fact_of(chosen_of("/sys/kernel/mm/transparent_hugepage/enabled"))},
      {"aslr", fact_of(line_of("/proc/sys/kernel/randomize_va_space"))},
      {"container", fact_of(container_image("/"))},
      {"clock_mhz", fact_of(clock_mhz(cpu))},
      {"celsius", fact_of(temperature_celsius("/"))},
      {"throttle_events", fact_of(throttle_events("/"))},
      {"load_average", loaded ? Fact{load} : Fact{}}};
}

}  // namespace

Fingerprint fingerprint(const std::map<std::string, Fact>& extra_hard) {
  Fingerprint print{.hard = hard_facts(), .soft = soft_facts()};
  for (const auto& [name, fact] : extra_hard) print.hard[name] = fact;
  std::string text;
  for (const auto& [name, fact] : print.hard) text += name + '=' + text_of(fact) + '\n';
  print.id = hash_text(text);
  return print;
}

std::map<std::string, std::string> published_environment() {
  constexpr std::string_view prefixes[] = {"OMP_", "GOMP_", "KMP_",      "DNNL_", "ONEDNN_", "MKL_",
                                           "UCX_", "NCCL_", "OMPI_MCA_", "CUDA_", "MB_"};
  // Open MPI's mpirun sets these for itself, another value each time.
  constexpr std::string_view launchers[] = {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix",
                                            "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME"};
  constexpr std::string_view secrets[] = {"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH"};
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    const bool listed = std::any_of(std::begin(prefixes), std::end(prefixes), begins) &&
                        std::none_of(std::begin(launchers), std::end(launchers), begins);
    const bool secret =
        std::any_of(std::begin(secrets), std::end(secrets),
                    [&](std::string_view s) { return name.find(s) != std::string_view::npos; });
    if (listed && !secret) out.emplace(name, text.substr(equals + 1));
  }
  return out;
}

std::string hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

}  // namespace mb
