// Device: memory, streams and events of one rank, and all that touches its memory. One source per
// kind of device: of cpu_device.cc a stream is a thread that computes, of cuda_device.cc a thread
// that enqueues on a CUDA stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/native_stream.h"
#include "parallel/timeline/timeline.h"
#include "workloads/base/error.h"
#include "workloads/ops/launch.h"

namespace mb {

// Nanoseconds of the clock that all ranks of this process share (CLOCK_MONOTONIC).
std::int64_t now_ns();

// A point in a stream: the `ticket`-th submission to it, counted from 1. Ticket 0 has always
// passed.
struct Event {
  int stream = 0;
  std::int64_t ticket = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // What messages call it after the rank's name: "cuda device 1"; a CPU is "".
  virtual std::string text() const { return ""; }
  // Whether any thread may touch its memory.
  virtual bool memory_is_host() const { return true; }

  // --- outside of steps: done on return ---

  // Device memory, aligned to 64, and memory of the host that the device copies to and from; not
  // initialised but touched. Freed with the device. Throw OutOfMemory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void fill(void* at, std::byte value, std::size_t bytes) = 0;
  // Room for `op` on a stream, so that no step allocates.
  virtual void prepare(int stream, const Op& op) = 0;

  // --- streams ---

  // A step begins: what was submitted before is done. `record`: marks will be taken.
  virtual void begin_step(bool record) { (void)record; }
  // Submits work to a stream, in order. It runs later on the stream's thread: on a CPU it computes,
  // on a GPU it enqueues, by the functions below. The event has passed when the work, and on a GPU
  // what it has enqueued, is done. One that will not be waited for may be cheaper if not `awaited`.
  virtual Event submit(int stream, std::function<void()> work, bool awaited = true) = 0;
  // Whatever is submitted to `stream` from now on starts after `event` has passed.
  virtual void wait(int stream, Event event) = 0;
  // Returns when all that was submitted is done; rethrows the first exception that work has thrown.
  // After an exception the device skips all queued work.
  virtual void synchronize() = 0;
  // How much of what was submitted has passed, as far as can be told without waiting. From any
  // thread.
  virtual std::int64_t passed() const { return 0; }

  // --- called by work, on its stream ---

  // Operands as op.h lists them.
  virtual void run(int stream, const Op& op, const OpContext& context,
                   std::span<const void* const> reads, std::span<void* const> writes) = 0;
  // From and to memory of either kind.
  virtual void copy(int stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(int stream, void* at, std::byte value, std::size_t bytes) = 0;
  // Shows the bytes, at most kMostShown, to `look` when the stream comes to it. `look` may throw.
  using Look = std::function<void(std::span<const std::byte>)>;
  static constexpr std::size_t kMostShown = 64;
  virtual void show(int stream, const void* from, std::size_t bytes, Look look) = 0;
  // Returns once the stream has done what was enqueued: memory of the host may be used.
  virtual void finish(int stream) = 0;
  // For a World whose Comms enqueue; without a stream where work computes by itself.
  virtual NativeStream native(int /*stream*/) const { return {}; }

  // The time at which the stream comes to here. Both ends of spans are such marks until resolve(),
  // to be called after synchronize(), makes times of now_ns() of them.
  virtual std::int64_t mark(int stream) = 0;
  virtual void resolve(std::vector<Span>& spans) = 0;
  // How far resolved times may be off.
  virtual std::int64_t clock_uncertainty_ns() const { return 0; }
};

// A CPU rank with `streams` streams. Threads start with the first submission to a stream. `name` is
// for thread names.
std::unique_ptr<Device> make_cpu_device(int streams, const std::string& name);

}  // namespace mb
