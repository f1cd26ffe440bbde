// Streams as worker threads with queues: what devices make theirs of.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mb {

// How far a stream has come. One thread advances, any thread waits; a finished ticket that nobody
// waits for costs no system call.
class Progress {
 public:
  bool passed(std::int64_t ticket) const { return done_.load() >= ticket; }
  std::int64_t done() const { return done_.load(); }

  void advance() {
    const std::int64_t done = done_.load(std::memory_order_relaxed) + 1;
    done_.store(done);
    if (done < wanted_.load()) return;
    wanted_.store(nobody);
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }

  // A waiter says what it wants before its last look at `done_`, and the worker looks the other way
  // round, so one of them sees the other. Waiters that were woken too early say it again.
  void wait_for(std::int64_t ticket) {
    while (!passed(ticket)) {
      const std::uint32_t wakes = wakes_.load();
      std::int64_t wanted = wanted_.load();
      while (ticket < wanted && !wanted_.compare_exchange_weak(wanted, ticket)) {
      }
      if (passed(ticket)) return;
      wakes_.wait(wakes);
    }
  }

 private:
  static constexpr std::int64_t nobody = std::numeric_limits<std::int64_t>::max();

  alignas(64) std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> wanted_{nobody};  // the least ticket that a waiter has asked for
  std::atomic<std::uint32_t> wakes_{0};
};

// The first exception of any stream of a device, and whether queued work is still to run.
class Failure {
 public:
  bool skipping() const { return skipping_.load(std::memory_order_acquire); }
  void skip_all() { skipping_ = true; }

  void keep(std::exception_ptr exception) {
    std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(exception);
    skipping_ = true;
  }

  void rethrow() {
    std::lock_guard lock(mutex_);
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> skipping_{false};
  std::mutex mutex_;
  std::exception_ptr first_;
};

// A worker thread, which starts with the first work, and its queue. Tickets count work from 1.
class WorkerStream {
 public:
  // `begin` runs first on the thread, if there is one.
  WorkerStream(std::string name, Failure& failure, std::function<void()> begin = nullptr)
      : name_(std::move(name)), failure_(failure), begin_(std::move(begin)) {}

  // To be called once no other stream's ticket is waited for in vain.
  void stop();

  std::int64_t submit(std::function<void()> work) { return push({std::move(work), nullptr, 0}); }
  // What follows starts after `ticket` of `other` is done, and `then`, if there is one, has run.
  void wait_for(Progress& other, std::int64_t ticket, std::function<void()> then = nullptr) {
    push({std::move(then), &other, ticket});
  }

  Progress& progress() { return progress_; }
  std::int64_t submitted();

 private:
  // Work with a ticket, or where `other` is given, what to do once that stream has come so far.
  struct Item {
    std::function<void()> work;
    Progress* other = nullptr;
    std::int64_t ticket = 0;
  };

  std::int64_t push(Item item);
  void run();
  void run(Item& item);

  const std::string name_;
  Failure& failure_;
  const std::function<void()> begin_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<Item> queue_;  // this and what follows: guarded by mutex_
  std::int64_t submitted_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mb
