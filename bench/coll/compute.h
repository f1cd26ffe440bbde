// Computation on a second thread of a rank, to run beside its collectives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "bench/coll/config.h"
#include "bench/coll/cores.h"

namespace mb {

// Units of some tens of microseconds: a matmul of 32 x 256 x 256 in fp32, or a triad over 3 x 256
// KiB that moves on through 3 x 16 MiB.
class ComputeThread {
 public:
  // The thread runs on any of `cores`, which outlive it.
  ComputeThread(ComputeKind kind, const Cores& cores);
  ~ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

  // Lets the thread do `units`, and waits until it has.
  void start(std::int64_t units);
  void wait();
  std::int64_t end_ns() const { return end_ns_; }  // of what was waited for

 private:
  void loop();
  void unit();

  ComputeKind kind_;
  const Cores& cores_;
  std::vector<float> a_, b_, c_;
  std::size_t at_ = 0;
  std::int64_t units_ = 0, end_ns_ = 0;
  std::atomic<std::uint32_t> asked_{0}, done_{0};
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

}  // namespace mb
