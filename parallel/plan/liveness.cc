#include "parallel/plan/liveness.h"

#include <vector>

namespace mb {

MemoryPeak memory_peak(const Program& program) {
  BytesByClass live{};
  std::int64_t total = 0;
  std::vector<std::vector<TensorId>> born(program.instructions.size()),
      dead(program.instructions.size());
  for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.base != kNone) continue;
    if (tensor.persistent) {
      live[static_cast<int>(tensor.memory)] += tensor.bytes;
      total += tensor.bytes;
    } else if (tensor.first != kNone) {
      born[tensor.first].push_back(t);
      dead[tensor.last].push_back(t);
    }
  }
  MemoryPeak peak{.total_bytes = total, .at_total_peak = live, .class_peak = live};
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (TensorId t : born[i]) {
      const int memory = static_cast<int>(program.tensors[t].memory);
      live[memory] += program.tensors[t].bytes;
      total += program.tensors[t].bytes;
      peak.class_peak[memory] = std::max(peak.class_peak[memory], live[memory]);
    }
    if (total > peak.total_bytes) {
      peak.total_bytes = total;
      peak.at = static_cast<InstructionId>(i);
      peak.at_total_peak = live;
    }
    for (TensorId t : dead[i]) {
      live[static_cast<int>(program.tensors[t].memory)] -= program.tensors[t].bytes;
      total -= program.tensors[t].bytes;
    }
  }
  return peak;
}

}  // namespace mb
