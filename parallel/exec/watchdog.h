// Watches that a run makes progress.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace mb {

// As long as it lives, looks at `progress` from a thread of its own, and calls `hung` if it stays
// the same for `patience_s`: once, or where that returns false, again after as long. Time in which
// this process did not run does not count.
class Watchdog {
 public:
  Watchdog(double patience_s, std::function<std::int64_t()> progress, std::function<bool()> hung);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // For how long `progress` has stayed the same. Thread-safe.
  double idle_s();

 private:
  using Clock = std::chrono::steady_clock;
  void watch(double patience_s, const std::function<bool()>& hung);
  void leave_out(std::chrono::duration<double> time);

  const std::function<std::int64_t()> progress_;
  std::mutex seen_mutex_;
  std::int64_t seen_ = -1;
  Clock::time_point since_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace mb
