// The one lock of all emulated communicators. A test double; see emulation.h.
#pragma once

#include <condition_variable>
#include <mutex>

namespace mb::cuda_emulation {

struct NcclLock {
  std::mutex mutex;
  std::condition_variable changed;
};
NcclLock& nccl_lock();

}  // namespace mb::cuda_emulation
