#include "parallel/device/worker_stream.h"

#include <pthread.h>

namespace mb {

void WorkerStream::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::int64_t WorkerStream::submitted() {
  std::lock_guard lock(mutex_);
  return submitted_;
}

std::int64_t WorkerStream::push(Item item) {
  std::unique_lock lock(mutex_);
  if (!item.other) {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });  // may throw
    ++submitted_;
  }
  const std::int64_t ticket = submitted_;
  queue_.push_back(std::move(item));
  lock.unlock();
  filled_.notify_one();
  return ticket;
}

// Takes the whole queue at a time, so that both vectors keep their memory and the lock is rare.
void WorkerStream::run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());  // 15: the kernel's limit
  try {
    if (begin_) begin_();
  } catch (...) {
    failure_.keep(std::current_exception());
  }
  std::vector<Item> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      batch.swap(queue_);
    }
    for (Item& item : batch) run(item);
    batch.clear();
  }
}

void WorkerStream::run(Item& item) {
  const bool skip = failure_.skipping();
  if (item.other && !skip) item.other->wait_for(item.ticket);
  try {
    if (!skip && item.work) item.work();
  } catch (...) {
    failure_.keep(std::current_exception());
  }
  item.work = nullptr;  // what it captured is gone before its event has passed
  if (!item.other) progress_.advance();
}

}  // namespace mb
