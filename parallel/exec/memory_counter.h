// Live bytes by class and their peaks, counted as a rank takes its tensors and gives them back.
#pragma once

#include <algorithm>

#include "parallel/plan/liveness.h"

namespace mb {

class MemoryCounter {
 public:
  void take(const Tensor& tensor, InstructionId at) {
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
    live_[static_cast<int>(tensor.memory)] -= tensor.bytes;
    total_ -= tensor.bytes;
  }
  const MemoryPeak& peak() const { return peak_; }

 private:
  BytesByClass live_{};
  std::int64_t total_ = 0;
  MemoryPeak peak_;
};

}  // namespace mb
