// A CPU rank: each stream is a worker thread with a queue, each event a count of finished work.
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/device/device.h"
#include "workloads/base/error.h"

namespace mb {

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

namespace {

// How far a stream has come. One thread advances, any thread waits; a finished ticket that nobody
// waits for costs no system call.
class Progress {
 public:
  bool passed(std::int64_t ticket) const { return done_.load() >= ticket; }

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

// Work to run, or where it is empty, a ticket of another stream to wait for.
struct Item {
  std::function<void()> work;
  Progress* other = nullptr;
  std::int64_t ticket = 0;
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

class Stream {
 public:
  Stream(std::string name, Failure& failure) : name_(std::move(name)), failure_(failure) {}

  // To be called once no other stream's ticket is waited for in vain.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    filled_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  std::int64_t submit(std::function<void()> work) { return push({std::move(work), nullptr, 0}); }

  void wait_for(Progress& other, std::int64_t ticket) { push({nullptr, &other, ticket}); }

  Progress& progress() { return progress_; }

  std::int64_t submitted() {
    std::lock_guard lock(mutex_);
    return submitted_;
  }

 private:
  std::int64_t push(Item item) {
    std::unique_lock lock(mutex_);
    if (item.work) {
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
  void run() {
    pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());  // 15: the kernel's limit
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

  void run(Item& item) {
    const bool skip = failure_.skipping();
    if (!item.work) {
      if (!skip) item.other->wait_for(item.ticket);
      return;
    }
    try {
      if (!skip) item.work();
    } catch (...) {
      failure_.keep(std::current_exception());
    }
    item.work = nullptr;  // what it captured is gone before its event has passed
    progress_.advance();
  }

  const std::string name_;
  Failure& failure_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<Item> queue_;  // this and what follows: guarded by mutex_
  std::int64_t submitted_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(int streams, std::string name) : name_(std::move(name)) {
    require(streams >= 1, "device ", name_, " wants at least one stream, not ", streams);
    for (int s = 0; s < streams; ++s) {
      streams_.push_back(std::make_unique<Stream>(cat(name_, ".", s), failure_));
    }
  }

  // Skips what is queued and waits for what runs; who waits for a peer must have been aborted.
  ~CpuDevice() override {
    failure_.skip_all();
    drain();
    for (auto& stream : streams_) stream->stop();
  }

  void* allocate(std::size_t bytes) override {
    constexpr std::size_t page = 4096, huge_page = 2 << 20;
    const std::size_t alignment = bytes >= huge_page ? huge_page : 64;
    const std::size_t size =
        (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    Memory memory(size >= bytes ? std::aligned_alloc(alignment, size) : nullptr);
    require(memory != nullptr, "device ", name_, " has no memory for ", bytes, " bytes");
    auto* const start = static_cast<volatile char*>(memory.get());
    if (alignment == huge_page) madvise(memory.get(), size, MADV_HUGEPAGE);
    for (std::size_t at = 0; at < size; at += page) start[at] = 0;
    std::lock_guard lock(mutex_);
    memories_.push_back(std::move(memory));
    return memories_.back().get();
  }

  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }

  Event submit(int stream, std::function<void()> work) override {
    require(work != nullptr, "device ", name_, ": stream ", stream, " was given empty work");
    return {stream, at(stream).submit(std::move(work))};
  }

  void wait(int stream, Event event) override {
    Stream& waiter = at(stream);
    Stream& other = at(event.stream);
    if (&waiter == &other || other.progress().passed(event.ticket)) return;
    require(event.ticket <= other.submitted(), "device ", name_, ": stream ", stream,
            " would wait for ticket ", event.ticket, " of stream ", event.stream,
            ", which has not been submitted");
    waiter.wait_for(other.progress(), event.ticket);
  }

  void synchronize() override {
    drain();
    failure_.rethrow();
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;

  void drain() {
    for (auto& stream : streams_) stream->progress().wait_for(stream->submitted());
  }

  Stream& at(int stream) {
    require(stream >= 0 && stream < static_cast<int>(streams_.size()), "device ", name_,
            " has no stream ", stream, " of ", streams_.size());
    return *streams_[stream];
  }

  const std::string name_;
  std::mutex mutex_;
  std::vector<Memory> memories_;  // guarded by mutex_
  Failure failure_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int streams, const std::string& name) {
  return std::make_unique<CpuDevice>(streams, name);
}

}  // namespace mb
