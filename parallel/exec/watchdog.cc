#include "parallel/exec/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mb {

Watchdog::Watchdog(double patience_s, std::function<std::int64_t()> progress,
                   std::function<void()> hung)
    : thread_([this, patience_s, progress = std::move(progress), hung = std::move(hung)] {
        watch(patience_s, progress, hung);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::watch(double patience_s, const std::function<std::int64_t()>& progress,
                     const std::function<void()>& hung) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const Seconds patience(patience_s);
  std::unique_lock lock(mutex_);
  std::int64_t seen = -1;
  auto since = Clock::now();
  while (!wake_.wait_for(lock, std::min(patience / 4, Seconds(1)), [this] { return done_; })) {
    const std::int64_t now = progress();
    if (now != seen) {
      seen = now;
      since = Clock::now();
    } else if (Clock::now() - since > patience) {
      hung();
      return;
    }
  }
}

}  // namespace mb
