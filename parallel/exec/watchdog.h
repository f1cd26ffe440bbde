// Watches that a run makes progress.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace mb {

// As long as it lives, looks at `progress` from a thread of its own, and calls `hung` once if it
// stays the same for `patience_s`.
class Watchdog {
 public:
  Watchdog(double patience_s, std::function<std::int64_t()> progress, std::function<void()> hung);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(double patience_s, const std::function<std::int64_t()>& progress,
             const std::function<void()>& hung);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace mb
