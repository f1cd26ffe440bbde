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
  using Seconds = std::chrono::duration<double>;
  const Seconds pause(std::min(patience_s / 4, 0.25));
  double asked_s = 0;  // idle for how long when `hung` was last called
  Clock::time_point looked = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return done_; })) {
    const Seconds away = Clock::now() - std::exchange(looked, Clock::now());
    if (away > 4 * pause) leave_out(away - pause);
    const double idle = idle_s();
    if (idle < asked_s) asked_s = 0;
    if (idle <= asked_s + patience_s) continue;
    lock.unlock();  // others may ask for idle_s() or end the run meanwhile
    if (hung()) return;
    asked_s = idle;
    looked = Clock::now();
    lock.lock();
  }
}

// This process was stopped, or got no core: nothing can be said of the others in that time.
void Watchdog::leave_out(std::chrono::duration<double> time) {
  const std::lock_guard lock(seen_mutex_);
  since_ = std::min(Clock::now(), since_ + std::chrono::duration_cast<Clock::duration>(time));
}

}  // namespace mb
