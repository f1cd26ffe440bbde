#include "parallel/comm/nccl_communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "workloads/base/cuda_check.h"

namespace mb {
namespace {

ncclConfig_t config_of(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  return config;
}

}  // namespace

std::string nccl_error_text(ncclResult_t code) {
  const char* hint = "; NCCL_DEBUG=INFO makes NCCL tell more";
  if (code == ncclInvalidUsage)
    hint = "; two ranks may be on one GPU: give each its own, or take mode=cuda+threads";
  if (code == ncclRemoteError) hint = "; a rank has ended, or the network between two has failed";
  return cat("NCCL status ", static_cast<int>(code), ", ", ncclGetErrorString(code), hint);
}

NcclCommunicator::NcclCommunicator(const World& hosts, std::string name, int device,
                                   double timeout_s)
    : hosts_(hosts), name_(std::move(name)), device_(device), timeout_s_(timeout_s) {}

// Once ranks have aborted there is nobody to end with in good order.
NcclCommunicator::~NcclCommunicator() {
  if (hosts_.aborted()) abort();
  const std::lock_guard lock(mutex_);
  if (const ncclComm_t comm = comm_.exchange(nullptr)) ncclCommDestroy(comm);
}

void NcclCommunicator::join(const ncclUniqueId& id, int ranks, int rank) {
  ncclConfig_t config = config_of(false);
  check(cudaSetDevice(device_), "cudaSetDevice");
  {
    const std::lock_guard lock(mutex_);
    ncclComm_t& whole = *parts_.emplace_back(std::make_unique<ncclComm_t>(nullptr));
    const ncclResult_t code = ncclCommInitRankConfig(&whole, ranks, id, rank, &config);
    comm_ = whole;
    if (code != ncclSuccess && code != ncclInProgress) fail("ncclCommInitRankConfig", code);
  }
  settle("ncclCommInitRankConfig");
}

void NcclCommunicator::join_part(NcclCommunicator& parent, int color, int key) {
  ncclConfig_t config = config_of(true);
  check(cudaSetDevice(device_), "cudaSetDevice");
  ncclComm_t* made = nullptr;
  {
    const std::lock_guard lock(parent.mutex_);
    if (parent.aborted_) throw Aborted(hosts_.reason());
    made = parent.parts_.emplace_back(std::make_unique<ncclComm_t>(nullptr)).get();
    const ncclResult_t code = ncclCommSplit(parent.comm_, color, key, made, &config);
    if (code != ncclSuccess && code != ncclInProgress) fail("ncclCommSplit", code);
  }
  parent.settle("ncclCommSplit");
  {
    const std::lock_guard lock(mutex_);
    comm_ = *made;
  }
  if (color != NCCL_SPLIT_NOCOLOR) settle("ncclCommSplit");
}

void NcclCommunicator::enqueue(const char* what, const Call& call) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Aborted(hosts_.reason());
  const ncclResult_t code = call(comm_);
  if (aborted_) throw Aborted(hosts_.reason());  // it may have ended for that
  if (code != ncclSuccess) fail(what, code);
}

// Until the library is through with the last call; before that the communicator takes no other.
// The lock is let go between looks, so that abort() comes through.
void NcclCommunicator::settle(const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int looks = 0;; ++looks) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_ || hosts_.aborted()) throw Aborted(hosts_.reason());
      ncclResult_t state = ncclSuccess;
      const ncclResult_t code = ncclCommGetAsyncError(comm_, &state);
      if (code != ncclSuccess) fail("ncclCommGetAsyncError", code);
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) fail(what, state);
    }
    const std::chrono::duration<double> passed = Clock::now() - start;
    require(passed.count() < timeout_s_, name_, ", device ", device_, ": ", what,
            " is not through after ", timeout_s_,
            " s: a rank has not come or cannot be reached; NCCL_DEBUG=INFO makes NCCL tell how far "
            "it got, NCCL_SOCKET_IFNAME says which network it takes");
    if (looks > 100) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void NcclCommunicator::fail(const char* what, ncclResult_t code) const {
  throw Error(cat(name_, ", device ", device_, ": ", what, ": ", nccl_error_text(code)));
}

// Who has the lock for long waits for a rank that will not come, and ends by nothing but this.
void NcclCommunicator::abort() {
  constexpr std::chrono::milliseconds kLong(200);
  aborted_ = true;
  const std::unique_lock lock(mutex_, kLong);
  if (const ncclComm_t comm = comm_.exchange(nullptr)) ncclCommAbort(comm);
}

std::string NcclCommunicator::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // a call that goes on tells itself
  if (!lock || aborted_ || !comm_) return "";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(comm_, &state);
  if (code != ncclSuccess) state = code;
  if (state == ncclSuccess || state == ncclInProgress) return "";
  return cat(name_, ", device ", device_, ": ", nccl_error_text(state));
}

}  // namespace mb
