#include "parallel/device/cuda_stream.h"

#include <algorithm>

#include "workloads/base/cuda_check.h"
#include "workloads/base/error.h"

namespace mb {

CudaStream::CudaStream(const CudaOptions& options, int priority, const std::string& name,
                       Failure& failure)
    : worker(name, failure,
             [device = options.device] { check(cudaSetDevice(device), "cudaSetDevice"); }),
      options_{options.tf32, options.fused_attention} {
  check(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
}
CudaStream::~CudaStream() {
  ops_.reset();
  if (native) cudaStreamDestroy(native);
}

cuda::StreamOps& CudaStream::ops() {
  if (!ops_) ops_ = std::make_unique<cuda::StreamOps>(native, options_);
  return *ops_;
}

cudaEvent_t CudaStream::event_for(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  awaited_.push_back({ticket, events_.take()});
  return awaited_.back().event;
}

cudaEvent_t CudaStream::event_of(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket <= earlier_) return nullptr;
  const auto at = std::lower_bound(
      awaited_.begin(), awaited_.end(), ticket,
      [](const Awaited& known, std::int64_t wanted) { return known.ticket < wanted; });
  require(at != awaited_.end() && at->ticket == ticket, "ticket ", ticket,
          " was submitted as one that nobody waits for");
  return at->event;
}

void CudaStream::reuse_events(bool captured) {
  const std::lock_guard lock(mutex_);
  before_ += static_cast<std::int64_t>(awaited_.size());
  seen_ = 0;
  captured_ = captured;
  awaited_.clear();
  events_.reuse();
  earlier_ = worker.submitted();
}

std::int64_t CudaStream::passed() {
  const std::lock_guard lock(mutex_);
  while (!captured_ && seen_ < awaited_.size() &&
         worker.progress().passed(awaited_[seen_].ticket) &&
         cudaEventQuery(awaited_[seen_].event) == cudaSuccess)
    ++seen_;
  return before_ + static_cast<std::int64_t>(seen_);
}

}  // namespace mb
