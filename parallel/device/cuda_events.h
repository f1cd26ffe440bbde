// CUDA events of a step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "workloads/base/cuda_check.h"

namespace mb {

// Events that are made once and recorded anew in every step.
class EventPool {
 public:
  explicit EventPool(unsigned flags) : flags_(flags) {}
  ~EventPool() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take() {
    if (used_ == events_.size()) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, flags_), "cudaEventCreateWithFlags");
      events_.push_back(made);
    }
    return events_[used_++];
  }
  std::size_t used() const { return used_; }
  cudaEvent_t at(std::size_t index) const { return events_[index]; }
  void reuse() { used_ = 0; }

 private:
  const unsigned flags_;
  std::vector<cudaEvent_t> events_;
  std::size_t used_ = 0;
};

}  // namespace mb
