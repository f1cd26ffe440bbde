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
  std::int64_t total = 0, host = 0;
  MemoryPeak peak;
  const auto count = [&](const Tensor& tensor, std::int64_t bytes) {
    if (tensor.host) {
      peak.host_bytes = std::max(peak.host_bytes, host += bytes);
      return;
    }
    const int memory = static_cast<int>(tensor.memory);
    live[memory] += bytes;
    total += bytes;
    peak.class_peak[memory] = std::max(peak.class_peak[memory], live[memory]);
  };
  for (const Tensor& tensor : program.tensors) {
    if (tensor.base == kNone && tensor.persistent) count(tensor, tensor.bytes);
  }
  peak.total_bytes = total;
  peak.at_total_peak = live;
  const Lifetimes lifetimes(program);
  for (InstructionId i = 0; i < static_cast<InstructionId>(program.instructions.size()); ++i) {
    for (TensorId t : lifetimes.born_at(i)) count(program.tensors[t], program.tensors[t].bytes);
    if (total > peak.total_bytes) {
      peak.total_bytes = total;
      peak.at = i;
      peak.at_total_peak = live;
    }
    for (TensorId t : lifetimes.dead_after(i)) count(program.tensors[t], -program.tensors[t].bytes);
  }
  return peak;
}

}  // namespace mb
