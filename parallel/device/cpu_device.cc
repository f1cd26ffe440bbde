// A CPU rank: each stream is a worker thread that computes, each event a count of finished work.
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/device/worker_stream.h"
#include "workloads/base/error.h"

namespace mb {

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

namespace {

// Has Linux run this thread as soon as it wakes, before threads that compute, as priorities of CUDA
// streams do: what it has to do is short, and other ranks wait for it. The scheduler asks for the
// shortest slice that there is (sched(7), from 6.12 on); older ones change nothing.
void prefer_this_thread() {
  struct Attributes {  // sched_attr of linux/sched/types.h, first version
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t slice_ns, deadline_ns, period_ns;
  } attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.slice_ns = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int streams, std::string name) : name_(std::move(name)) {
    require(streams >= 1, "device ", name_, " wants at least one stream, not ", streams);
    for (int s = 0; s < streams; ++s) {
      streams_.push_back(std::make_unique<WorkerStream>(cat(name_, ".", s), failure_,
                                                        s == 0 ? nullptr : prefer_this_thread));
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
    if (!memory)
      throw OutOfMemory(cat("device ", name_, " has no memory for ", bytes, " bytes"),
                        static_cast<std::int64_t>(bytes), 0);
    auto* const start = static_cast<volatile char*>(memory.get());
    if (alignment == huge_page) madvise(memory.get(), size, MADV_HUGEPAGE);
    for (std::size_t at = 0; at < size; at += page) start[at] = 0;
    std::lock_guard lock(mutex_);
    memories_.push_back(std::move(memory));
    return memories_.back().get();
  }
  void* allocate_host(std::size_t bytes) override { return allocate(bytes); }

  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }

  void fill(void* at, std::byte value, std::size_t bytes) override {
    std::memset(at, static_cast<int>(value), bytes);
  }
  void prepare(int, const Op&) override {}

  Event submit(int stream, std::function<void()> work, bool) override {
    require(work != nullptr, "device ", name_, ": stream ", stream, " was given empty work");
    return {stream, at(stream).submit(std::move(work))};
  }

  void wait(int stream, Event event) override {
    WorkerStream& waiter = at(stream);
    WorkerStream& other = at(event.stream);
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

  void run(int, const Op& op, const OpContext& context, std::span<const void* const> reads,
           std::span<void* const> writes) override {
    run_cpu_op(op, context, reads, writes);
  }
  void copy(int, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void fill(int, void* at, std::byte value, std::size_t bytes) override { fill(at, value, bytes); }
  void show(int, const void* from, std::size_t bytes, Look look) override {
    look({static_cast<const std::byte*>(from), bytes});
  }
  void finish(int) override {}

  std::int64_t mark(int) override { return now_ns(); }
  void resolve(std::vector<Span>&) override {}

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;

  void drain() {
    for (auto& stream : streams_) stream->progress().wait_for(stream->submitted());
  }

  WorkerStream& at(int stream) {
    require(stream >= 0 && stream < static_cast<int>(streams_.size()), "device ", name_,
            " has no stream ", stream, " of ", streams_.size());
    return *streams_[stream];
  }

  const std::string name_;
  std::mutex mutex_;
  std::vector<Memory> memories_;  // guarded by mutex_
  Failure failure_;
  std::vector<std::unique_ptr<WorkerStream>> streams_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int streams, const std::string& name) {
  return std::make_unique<CpuDevice>(streams, name);
}

}  // namespace mb
