// A stream of a CUDA device: a worker thread that enqueues on a CUDA stream, and the events that
// others wait for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/device/cuda_device.h"
#include "parallel/device/cuda_events.h"
#include "parallel/device/worker_stream.h"
#include "workloads/ops/cuda_ops.h"

namespace mb {

class CudaStream {
 public:
  CudaStream(const CudaOptions& options, int priority, const std::string& name, Failure& failure);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // Made when first asked for: not every stream computes.
  cuda::StreamOps& ops();
  void rethrow() {
    if (ops_) ops_->rethrow();
  }

  cudaStream_t native = nullptr;
  WorkerStream worker;
  EventPool marks{cudaEventDefault};  // of the worker's thread

  // --- for the thread that submits ---

  // The event of a ticket that will be waited for.
  cudaEvent_t event_for(std::int64_t ticket);
  // The last ticket before this step.
  std::int64_t earlier() const { return earlier_; }
  // nullptr where the ticket was of an earlier step. Throws Error where nobody was to wait for it.
  cudaEvent_t event_of(std::int64_t ticket);
  // All is done: a new step may use the events again. Those that are to be `captured` are points of
  // a graph and cannot be asked whether they have passed.
  void reuse_events(bool captured);
  // How many events have passed. From any thread.
  std::int64_t passed();

 private:
  // What a stream has to tell others: whether it has come to an event.
  struct Awaited {
    std::int64_t ticket;
    cudaEvent_t event;
  };

  const cuda::StreamOptions options_;
  std::unique_ptr<cuda::StreamOps> ops_;
  std::mutex mutex_;
  std::int64_t earlier_ = 0;                  // of the thread that submits
  EventPool events_{cudaEventDisableTiming};  // this and what follows: guarded by mutex_
  std::vector<Awaited> awaited_;              // in this step, by ticket
  std::size_t seen_ = 0;                      // of those, have passed
  std::int64_t before_ = 0;                   // in earlier steps
  bool captured_ = false;
};

}  // namespace mb
