#include "bench/doctor/checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// A line that is a note with advice where `wrong`.
Check line(std::string name, std::string value, bool wrong, std::string advice) {
  return {std::move(name), std::move(value), wrong ? Verdict::note : Verdict::ok,
          wrong ? std::move(advice) : ""};
}

Check cores(const NodeFacts& node) {
  if (!node.online_cores || !node.usable_cores)
    return line("cores", "not told", true, "mount /proc and /sys");
  const auto usable = static_cast<double>(*node.usable_cores);
  const bool capped = node.quota_cores && *node.quota_cores < usable;
  std::string value = cat(*node.usable_cores, " usable of ", *node.online_cores);
  if (capped) value += cat(", time of ", *node.quota_cores, " by its control group");
  return line("cores", value, capped || *node.usable_cores < *node.online_cores,
              capped ? "ranks beyond that wait for a core in turns; raise the limit of CPU time"
                     : "ranks beyond the usable ones share cores; widen the CPU set for timings");
}

Check memory(const NodeFacts& node) {
  if (!node.memory_bytes || !node.available_bytes)
    return line("memory", "not told", true, "mount /proc");
  const bool scarce = *node.available_bytes < *node.memory_bytes / 4;
  return line("memory",
              cat(bytes_text(*node.available_bytes), " free of ", bytes_text(*node.memory_bytes)),
              scarce, "less than a quarter is free; end what else runs here");
}

// NCCL and MPI pass messages of a node through /dev/shm; containers give it 64 MiB.
Check shared_memory(const NodeFacts& node) {
  constexpr std::int64_t least = std::int64_t{1} << 30;
  if (!node.shared_memory_bytes)
    return line("shared memory", "no /dev/shm", true, "mount a tmpfs there; MPI and NCCL want one");
  return line("shared memory", bytes_text(*node.shared_memory_bytes),
              *node.shared_memory_bytes < least,
              "MPI and NCCL may run out of it; start the container with --shm-size=1g or more");
}

Check huge_pages(const NodeFacts& node) {
  return line("huge pages", node.huge_pages.value_or("not told"),
              node.huge_pages.value_or("never") == "never",
              "large buffers cost more page walks; echo madvise > "
              "/sys/kernel/mm/transparent_hugepage/enabled");
}

Check clock(const NodeFacts& node) {
  const std::string source = node.clock_source.value_or("not told");
  const bool quick = source == "tsc" || source == "kvm-clock" || source == "arch_sys_counter" ||
                     source.starts_with("hyperv_clocksource_tsc");
  return line("time source", source, !quick,
              "each time stamp may be a system call of 1 us and more; boot with clocksource=tsc if "
              "the processor's is stable");
}

Check governor(const NodeFacts& node) {
  return line("governor", node.governor.value_or("not told; the machine's own"),
              node.governor && *node.governor != "performance",
              "clocks follow the load, and so do timings; cpupower frequency-set -g performance");
}

Check numa(const NodeFacts& node) {
  return line("NUMA nodes", cat(node.numa_nodes), node.numa_nodes > 1,
              "bind each rank to the cores of one node; scripts/launch does");
}

Check mpi(const BuiltWith& built, const Asked& asked) {
  if (!built.mpis.empty()) return {"MPI", built.mpis};
  return {"MPI", "none in this build", asked.mpi ? Verdict::would_fail : Verdict::note,
          "install libopenmpi-dev and openmpi-bin, then configure and build again"};
}

// Cards register the memory that they send from, which has to be locked.
std::vector<Check> network(const NodeFacts& node) {
  std::vector<Check> checks;
  for (const NetworkCard& card : node.cards)
    checks.push_back(line(cat("network ", card.name),
                          cat(card.rate.value_or("rate not told"), card.active ? "" : ", down"),
                          !card.active, "its first port is not up; ask the fabric's manager"));
  if (checks.empty()) checks.push_back({"network", "no RDMA card; hosts talk by TCP"});
  if (!node.cards.empty() && node.locked_memory)
    checks.push_back(line("locked memory", *node.locked_memory, *node.locked_memory != "unlimited",
                          "RDMA cannot register what it sends; ulimit -l unlimited"));
  return checks;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::note:
      return "note";
    case Verdict::would_fail:
      return "would fail";
  }
  return "?";
}

std::vector<Check> diagnose(const NodeFacts& node, const GpuLibraryFacts& libraries,
                            const BuiltWith& built, const Asked& asked) {
  std::vector<Check> checks = {cores(node),      numa(node),     memory(node), shared_memory(node),
                               huge_pages(node), governor(node), clock(node),  mpi(built, asked)};
  for (const auto& more : {network(node), gpu_checks(node, libraries, built, asked)})
    checks.insert(checks.end(), more.begin(), more.end());
  return checks;
}

}  // namespace mb
