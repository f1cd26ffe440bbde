// Device: memory, streams and events of one rank. One source per kind of device; cpu_device.cc
// makes a stream a worker thread with a queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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

  // Bytes of device memory, aligned to 64, not initialised but touched. Freed with the device.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;

  // Submits work to a stream, in order. On a CPU `work` runs later on the stream's thread; on a GPU
  // it would run at once and enqueue kernels. The event has passed when the work is done.
  virtual Event submit(int stream, std::function<void()> work) = 0;
  // Whatever is submitted to `stream` from now on starts after `event` has passed.
  virtual void wait(int stream, Event event) = 0;
  // Returns when all that was submitted is done; rethrows the first exception that work has thrown.
  // After an exception the device skips all queued work.
  virtual void synchronize() = 0;
};

// A CPU rank with `streams` streams. Threads start with the first submission to a stream. `name` is
// for thread names.
std::unique_ptr<Device> make_cpu_device(int streams, const std::string& name);

}  // namespace mb
