// What the emulated libraries share: devices, memory, streams. A test double; see emulation.h.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/cuda_emulation/emulation.h"

namespace mb::cuda_emulation {

// --- every call
// -----------------------------------------------------------------------------------

// Counts a call; what it has to return at once, or 0: an error that a test asked for, else, where
// the current device is stuck in an error, that or what the library of the function calls it.
int enter(const char* function, int stuck_status = 0);
// The same, and remembers the error for cudaGetLastError.
cudaError_t enter_runtime(const char* function);
cudaError_t remember(cudaError_t error);
// Runs `body` unless the call has to fail.
template <class Body>
cudaError_t call(const char* name, Body body) {
  if (const cudaError_t error = enter_runtime(name)) return error;
  return remember(body());
}

// Notes a fault, see faults(); the device is stuck in `error` from now on. From any thread.
void fault(int device, cudaError_t error, const std::string& text);
bool stuck(int device);
int current_device();
const Settings& settings();

// --- memory
// ---------------------------------------------------------------------------------------

inline constexpr int kPinned = -1;  // host memory that devices reach

struct Range {
  std::byte* data = nullptr;  // of the whole allocation
  std::size_t bytes = 0;
  int device = 0;  // or kPinned
};
// The live allocation that `data` lies in; false for other memory.
bool find_range(const void* data, Range& range);
// Whether work of `device` may touch [data, data + bytes): in one live allocation, of this device
// or pinned. Notes the fault if not; `what` names the use.
bool check_access(int device, const void* data, std::size_t bytes, const std::string& what);

// --- streams
// --------------------------------------------------------------------------------------

// A piece of work, for those who record activity. Times are of now_ns().
struct Activity {
  const char* call = "";  // that submitted it: "cudaMemcpyAsync"
  int device = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;  // counts the pieces of the process
  std::size_t bytes = 0;          // of copies and sets
  int kind = 0;                   // cudaMemcpyKind of a copy
  std::int64_t start_ns = 0, end_ns = 0;
};
// What a call did to the host itself, on the thread that called: waits, allocations.
struct HostCall {
  const char* call = "";
  std::size_t bytes = 0;
  std::int64_t start_ns = 0, end_ns = 0;
};
// Each may be empty: `submitted` is called on the submitting thread, `done` on the stream's, `host`
// on the one that calls.
struct Observer {
  std::function<void(const Activity&)> submitted, done;
  std::function<void(const HostCall&)> host;
};
void observe(Observer observer);
// Tells the observer of a call that began at `start_ns` and ends now.
void tell_host(const char* call, std::int64_t start_ns, std::size_t bytes = 0);

// Up to Settings::most_delay_us, by the number of the piece.
void sleep_before(std::uint32_t piece);
// Runs `work` on the stream, after all that was submitted to it before, unless the device is stuck
// in an error by then, or adds it to the graph that the stream is captured into. nullptr is the
// device's default stream, which no other stream waits for.
cudaError_t submit(cudaStream_t stream, Activity activity, std::function<void()> work);
// The same for what has to happen in any case: events.
void submit_always(cudaStream_t stream, std::function<void()> work);
void drain(cudaStream_t stream);
void drain_device(int device);
int device_of(cudaStream_t stream);

}  // namespace mb::cuda_emulation

// The runtime's handles, which its header only names.
struct CUstream_st {
  explicit CUstream_st(int device, std::uint32_t id);
  ~CUstream_st();
  void push(std::function<void()> work);
  void drain();
  bool idle();

  const int device;
  const std::uint32_t id;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};
