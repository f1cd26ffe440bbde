#include "bench/cli/outer_memory.h"

#include <sys/resource.h>

#include <algorithm>

#include "bench/cli/ranks.h"
#include "bench/report/system_files.h"
#include "parallel/exec/predict.h"

namespace mb {
namespace {

Metric reserved(const Measured& measured) {
  std::int64_t arena = 0;
  for (const Program& program : measured.plan.programs)
    arena = std::max(arena, program.arena_bytes);
  return value("reserved_bytes", "B", static_cast<double>(arena));
}

Metric process_peak(const Measured& measured) {
  constexpr const char* kName = "process_peak_rss_bytes";
  rusage usage{};
  if (measured.training.empty()) return absent(kName, "B", "virtual time moves no data");
  if (getrusage(RUSAGE_SELF, &usage) != 0) return absent(kName, "B", "the system does not say");
  return value(kName, "B", 1024.0 * static_cast<double>(usage.ru_maxrss));  // Linux counts in KiB
}

Metric headroom(const Case& c, const Measured& measured, const Metric& process) {
  constexpr const char* kName = "headroom_bytes";
  if (c.mode == Mode::sim)
    return value(kName, "B",
                 1e9 * c.machine.memory_gb -
                     static_cast<double>(memory_of(measured.plan, c.machine, c.stack).total()));
  if (on_cuda(c.mode)) {
    if (measured.cuda.empty()) return absent(kName, "B", "the driver does not say");
    const auto left = [](const CudaFacts& device) {
      return device.total_bytes - device.used_bytes;
    };
    const auto fullest =
        std::min_element(measured.cuda.begin(), measured.cuda.end(),
                         [&](const CudaFacts& a, const CudaFacts& b) { return left(a) < left(b); });
    return value(kName, "B", static_cast<double>(left(*fullest)));
  }
  if (on_mpi(c.mode)) return absent(kName, "B", "processes of several ranks share the machine");
  const double capacity = usable_memory_bytes("/");
  if (capacity == 0 || process.samples.empty())
    return absent(kName, "B", "the system does not say");
  return value(kName, "B", capacity - process.samples.front());
}

}  // namespace

std::vector<Metric> outer_memory(const Case& c, const Measured& measured) {
  std::vector<Metric> metrics = {reserved(measured), process_peak(measured)};
  metrics.push_back(headroom(c, measured, metrics.back()));
  return metrics;
}

}  // namespace mb
