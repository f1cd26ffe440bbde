// The CUDA runtime's events. A test double; see emulation.h.
#include <cuda_runtime_api.h>

#include <optional>

#include "parallel/device/device.h"
#include "tests/support/cuda_emulation/graph.h"
#include "tests/support/cuda_emulation/state.h"

using namespace mb::cuda_emulation;

// One recording of an event.
struct Recording {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::int64_t ns = 0;

  void pass() {
    {
      const std::lock_guard lock(mutex);
      done = true;
      ns = mb::now_ns();
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  bool passed() {
    const std::lock_guard lock(mutex);
    return done;
  }
};

struct CUevent_st {
  std::mutex mutex;
  bool timed = true;
  std::shared_ptr<Recording> last;  // null: never recorded
  std::optional<Point> captured;    // where a captured stream was then

  std::shared_ptr<Recording> recording() {
    const std::lock_guard lock(mutex);
    return last;
  }
  std::optional<Point> point() {
    const std::lock_guard lock(mutex);
    return captured;
  }
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] {
    *event = new CUevent_st;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return call("cudaEventDestroy", [] { return cudaSuccess; });
}
// In a capture an event is a point of the graph, and one that is recorded as external a node of it.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return call("cudaEventRecord", [&] {
    const bool external = flags & cudaEventRecordExternal;
    std::optional<Point> point;
    if (!external) point = captured_point(stream);
    auto recording = std::make_shared<Recording>();
    {
      const std::lock_guard lock(event->mutex);
      event->captured = point;
      event->last = point ? nullptr : recording;
    }
    if (point) return cudaSuccess;
    const auto pass = [recording] { recording->pass(); };
    if (!external) {
      submit_always(stream, pass);
      return cudaSuccess;
    }
    return capture_work(*stream, {.call = "event", .device = stream->device}, pass)
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&] {
    if (const auto point = event->point()) return follow(stream, *point);
    // The recording at this time: a later one is not waited for.
    const auto recording = event->recording();
    if (!recording) return cudaSuccess;
    if (const cudaError_t error = refuse_captured(stream, cudaErrorStreamCaptureIsolation))
      return error;
    submit_always(stream, [recording] { recording->wait(); });
    tell_host("cudaStreamWaitEvent", mb::now_ns());
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] {
    if (event->point()) return cudaErrorCapturedEvent;
    const auto recording = event->recording();
    return !recording || recording->passed() ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = enter_runtime("cudaEventSynchronize")) return error;
  if (event->point()) return remember(cudaErrorCapturedEvent);
  const std::int64_t start = mb::now_ns();
  if (const auto recording = event->recording()) recording->wait();
  tell_host("cudaEventSynchronize", start);
  return enter_runtime("cudaEventSynchronize.done");
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call("cudaEventElapsedTime", [&] {
    const auto a = from->recording(), b = to->recording();
    if (!from->timed || !to->timed || !a || !b) return cudaErrorInvalidResourceHandle;
    if (!a->passed() || !b->passed()) return cudaErrorNotReady;
    *ms = static_cast<float>(static_cast<double>(b->ns - a->ns) * 1e-6);
    return cudaSuccess;
  });
}
