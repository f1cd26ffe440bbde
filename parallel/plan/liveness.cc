#include "parallel/plan/liveness.h"

#include <algorithm>

namespace mb {

Lifetimes::Groups::Groups(const Program& program, InstructionId Tensor::*key)
    : begin(program.instructions.size() + 1, 0) {
  const auto each = [&](auto visit) {
    for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (!tensor.persistent && tensor.base == kNone && tensor.first != kNone)
        visit(t, tensor.*key);
    }
  };
  each([&](TensorId, InstructionId i) { ++begin[i + 1]; });
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  tensors.resize(begin.back());
  std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
  each([&](TensorId t, InstructionId i) { tensors[next[i]++] = t; });
}

Lifetimes::Lifetimes(const Program& program)
    : born_(program, &Tensor::first), dead_(program, &Tensor::last) {}

MemoryPeak memory_peak(const Program& program) {
  BytesByClass live{};
  std::int64_t total = 0;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.base != kNone || !tensor.persistent) continue;
    live[static_cast<int>(tensor.memory)] += tensor.bytes;
    total += tensor.bytes;
  }
  MemoryPeak peak{.total_bytes = total, .at_total_peak = live, .class_peak = live};
  const Lifetimes lifetimes(program);
  for (InstructionId i = 0; i < static_cast<InstructionId>(program.instructions.size()); ++i) {
    for (TensorId t : lifetimes.born_at(i)) {
      const int memory = static_cast<int>(program.tensors[t].memory);
      live[memory] += program.tensors[t].bytes;
      total += program.tensors[t].bytes;
      peak.class_peak[memory] = std::max(peak.class_peak[memory], live[memory]);
    }
    if (total > peak.total_bytes) {
      peak.total_bytes = total;
      peak.at = i;
      peak.at_total_peak = live;
    }
    for (TensorId t : lifetimes.dead_after(i)) {
      live[static_cast<int>(program.tensors[t].memory)] -= program.tensors[t].bytes;
      total -= program.tensors[t].bytes;
    }
  }
  return peak;
}

}  // namespace mb
