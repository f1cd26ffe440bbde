// An NCCL communicator of one rank that any thread may abort.
//
// Ranks come together by calls that do not block. Those that enqueue do: one that does not is
// carried out by a thread that the library starts for it, some tens of microseconds later, on which
// no tracer knows which instruction it is for.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb {

// What an error says of itself, and what to try.
std::string nccl_error_text(ncclResult_t code);

class NcclCommunicator {
 public:
  // `name` is for messages: "rank 3, group tp". Keeps a reference to `hosts`, whose abort ends all
  // waits.
  NcclCommunicator(const World& hosts, std::string name, int device, double timeout_s);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Joins the communicator of `ranks` as `rank`, or the part of `parent` of those with the same
  // color, in the order of keys. Return once all have come. Without a color: takes part in the
  // splitting only.
  void join(const ncclUniqueId& id, int ranks, int rank);
  void join_part(NcclCommunicator& parent, int color, int key);

  // Runs `call`, which enqueues on a stream, and returns once it is enqueued. The first between two
  // ranks connects them, and may wait for the other.
  using Call = std::function<ncclResult_t(ncclComm_t)>;
  void enqueue(const char* what, const Call& call);

  // Ends what waits in it, a call that enqueues too; it is of no use any more. From any thread.
  void abort();
  // "" while all is well, else the error that came up after a call. From any thread.
  std::string async_error();
  int device() const { return device_; }

 private:
  void settle(const char* what);
  void fail(const char* what, ncclResult_t code) const;

  const World& hosts_;
  const std::string name_;
  const int device_;
  const double timeout_s_;
  std::timed_mutex mutex_;  // over every call of the library with comm_, but the one that aborts
  std::atomic<ncclComm_t> comm_ = nullptr;
  std::atomic<bool> aborted_ = false;
  // What splitting this one makes: the library writes to them until it is through, whoever still
  // waits for it.
  std::vector<std::unique_ptr<ncclComm_t>> parts_;
};

}  // namespace mb
