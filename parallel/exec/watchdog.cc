#include "parallel/exec/watchdog.h"

#include <algorithm>
#include <utility>

namespace mb {

Watchdog::Watchdog(double patience_s, std::function<std::int64_t()> progress,
                   std::function<bool()> hung)
    : progress_(std::move(progress)),
      thread_([this, patience_s, hung = std::move(hung)] { watch(patience_s, hung); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

double Watchdog::idle_s() {
  const std::lock_guard lock(seen_mutex_);
  const std::int64_t now = progress_();
  if (now != seen_) {
    seen_ = now;
    since_ = Clock::now();
  }
  return std::chrono::duration<double>(Clock::now() - since_).count();
}

void Watchdog::watch(double patience_s, const std::function<bool()>& hung) {
  const std::chrono::duration<double> pause(std::min(patience_s / 4, 0.25));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return done_; })) {
    if (idle_s() <= patience_s) continue;
    lock.unlock();  // others may ask for idle_s() or end the run meanwhile
    if (hung()) return;
    lock.lock();
    const std::lock_guard again(seen_mutex_);
    since_ = Clock::now();
  }
}

}  // namespace mb
