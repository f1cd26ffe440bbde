// Live bytes by class and their peaks, counted as a rank takes its tensors and gives them back.
#pragma once

#include <algorithm>

#include "parallel/plan/liveness.h"

namespace mb {

class MemoryCounter {
 public:
  void take(const Tensor& tensor, InstructionId at) {
    if (tensor.host) {
      peak_.host_bytes = std::max(peak_.host_bytes, host_ += tensor.bytes);
      return;
    }
    const int memory = static_cast<int>(tensor.memory);
    live_[memory] += tensor.bytes;
    total_ += tensor.bytes;
    peak_.class_peak[memory] = std::max(peak_.class_peak[memory], live_[memory]);
    if (total_ > peak_.total_bytes) {
      peak_.total_bytes = total_;
      peak_.at = at;
      peak_.at_total_peak = live_;
    }
  }
  void give(const Tensor& tensor) {
    if (tensor.host) {
      host_ -= tensor.bytes;
      return;
    }
    live_[static_cast<int>(tensor.memory)] -= tensor.bytes;
    total_ -= tensor.bytes;
  }
  const MemoryPeak& peak() const { return peak_; }

 private:
  BytesByClass live_{};
  std::int64_t total_ = 0, host_ = 0;
  MemoryPeak peak_;
};

}  // namespace mb
