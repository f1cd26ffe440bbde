// NCCL's functions on the host: communicators, groups of calls, aborts. A test double; see
// emulation.h.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/device/device.h"
#include "tests/support/cuda_emulation/nccl_lock.h"
#include "tests/support/cuda_emulation/nccl_processes.h"
#include "tests/support/cuda_emulation/nccl_state.h"
#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"

using namespace mb::cuda_emulation;

struct ncclComm {
  std::shared_ptr<NcclSeat> seat;
};

namespace {

struct Launch {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<NcclOperation> operations;
};
thread_local int group_depth = 0;
thread_local std::vector<Launch> group;
thread_local ncclResult_t group_error = ncclSuccess;

std::map<std::string, std::weak_ptr<NcclClique>>& cliques() {
  static auto* const known = new std::map<std::string, std::weak_ptr<NcclClique>>;
  return *known;
}
std::set<ncclComm_t>& communicators() {
  static auto* const known = new std::set<ncclComm_t>;
  return *known;
}

ncclResult_t enter_nccl(const char* function) {
  return static_cast<ncclResult_t>(enter(function, ncclUnhandledCudaError));
}

NcclMember& member_of(const NcclSeat& seat) {
  return seat.clique->members[static_cast<std::size_t>(seat.member)];
}

// Whether the communicator may be used; the lock is held.
bool ready(const NcclSeat& seat) {
  return seat.clique && seat.clique->complete() && seat.polls == 0 && !seat.pending;
}

ncclComm_t make(std::shared_ptr<NcclSeat> seat) {
  auto* const comm = new ncclComm{std::move(seat)};
  communicators().insert(comm);
  return comm;
}

// Two members on one device: refused by all, as NCCL does.
void check_devices(NcclClique& clique) {
  if (!clique.complete()) return;
  std::set<int> devices;
  for (const NcclMember& member : clique.members) {
    if (!devices.insert(member.device).second) clique.error = ncclInvalidUsage;
  }
}

void sit_down(const NcclSeat& seat) {
  NcclMember& member = member_of(seat);
  member.device = seat.device;
  member.joined = true;
  if (spans_processes()) post_member(*seat.clique, seat.member, seat.device);
  check_devices(*seat.clique);
  nccl_lock().changed.notify_all();
}

// Submits what a communicator has in a group. The lock is held.
void launch(const NcclSeat& seat, cudaStream_t stream, std::vector<NcclOperation> operations) {
  const auto kernel = make_kernel(seat, stream ? stream->id : 7, std::move(operations));
  submit(stream, {.call = "ncclKernel"}, [kernel] { run_kernel(*kernel); });
}

// As the library connects members at the first call that needs it, and returns once they are.
// Between processes nothing waits: what one has come to is not known to the others.
ncclResult_t connect(std::unique_lock<std::mutex>& lock, const std::shared_ptr<NcclSeat>& seat,
                     const std::vector<NcclOperation>& operations) {
  NcclClique& clique = *seat->clique;
  if (spans_processes()) return ncclSuccess;
  std::map<std::pair<int, int>, std::size_t> wanted;
  for (const NcclOperation& operation : operations) {
    if (!operation.is_message()) {
      wanted[{-1, -1}] = clique.members.size();
    } else if (operation.root != seat->member) {
      const bool sends = operation.kind == NcclKind::send;
      wanted[{sends ? seat->member : operation.root, sends ? operation.root : seat->member}] = 2;
    }
  }
  for (const auto& [between, members] : wanted) clique.connections[between].insert(seat->member);
  nccl_lock().changed.notify_all();
  const auto over = [&] { return member_of(*seat).aborted || clique.error != ncclSuccess; };
  nccl_lock().changed.wait(lock, [&] {
    return over() || std::all_of(wanted.begin(), wanted.end(), [&](const auto& connection) {
             return clique.connections[connection.first].size() >= connection.second;
           });
  });
  if (!over()) return ncclSuccess;
  return clique.error != ncclSuccess ? clique.error : ncclInternalError;
}

ncclResult_t launch_group() {
  std::unique_lock lock(nccl_lock().mutex);
  ncclResult_t result = std::exchange(group_error, ncclSuccess);
  for (Launch& each : std::exchange(group, {})) {
    const std::shared_ptr<NcclSeat> kept = each.comm->seat;  // an abort ends the communicator
    NcclSeat& seat = *kept;
    if (result != ncclSuccess && result != ncclInProgress) break;
    if (seat.clique->error != ncclSuccess) {
      result = seat.clique->error;
    } else if (seat.blocking) {
      result = connect(lock, kept, each.operations);
      if (result != ncclSuccess) break;
      launch(seat, each.stream, std::move(each.operations));
    } else if (settings().nccl_polls == 0) {
      // On a thread of the library's, which knows nothing of the one that calls.
      std::thread([&] { launch(seat, each.stream, std::move(each.operations)); }).join();
    } else {
      seat.polls = settings().nccl_polls;
      seat.pending = [&seat, each = std::move(each)] {
        launch(seat, each.stream, each.operations);
      };
      result = ncclInProgress;
    }
  }
  return result;
}

ncclResult_t remember_for_group(ncclResult_t result) {
  if (group_depth > 0 && result != ncclSuccess) group_error = result;
  return result;
}

ncclResult_t add(const char* name, ncclComm_t comm, cudaStream_t stream, NcclOperation operation) {
  if (const ncclResult_t error = enter_nccl(name)) return remember_for_group(error);
  {
    const std::lock_guard lock(nccl_lock().mutex);
    const bool rooted = operation.is_message() || operation.kind == NcclKind::reduce ||
                        operation.kind == NcclKind::broadcast;
    if (!communicators().contains(comm) || !ready(*comm->seat) || operation.type > ncclBfloat16 ||
        device_of(stream) != comm->seat->device ||
        (rooted && (operation.root < 0 ||
                    operation.root >= static_cast<int>(comm->seat->clique->members.size()))))
      return remember_for_group(ncclInvalidArgument);
    if (operation.count == 0) return ncclSuccess;
    auto of_comm = std::find_if(group.begin(), group.end(),
                                [&](const Launch& each) { return each.comm == comm; });
    if (of_comm == group.end()) of_comm = group.insert(group.end(), {comm, stream, {}});
    // The library would order the streams; nothing here has a use for that.
    if (of_comm->stream != stream) return remember_for_group(ncclInvalidUsage);
    of_comm->operations.push_back(operation);
  }
  return group_depth > 0 ? ncclSuccess : launch_group();
}

// In the order of (key, member), as MPI_Comm_split has it.
void carry_out(const NcclClique& parent, std::int64_t ordinal, NcclSplit& split) {
  std::map<int, std::vector<std::pair<std::pair<int, int>, NcclSeat*>>> groups;
  for (auto& [member, part] : split.parts) {
    if (part.color != NCCL_SPLIT_NOCOLOR)
      groups[part.color].push_back({{part.key, member}, part.seat.get()});
  }
  for (auto& [color, seats] : groups) {
    std::sort(seats.begin(), seats.end());
    const auto clique = std::make_shared<NcclClique>(
        mb::cat(parent.name, " part ", ordinal, " ", color), static_cast<int>(seats.size()));
    for (std::size_t m = 0; m < seats.size(); ++m) {
      if (!seats[m].second) continue;  // another process has it
      seats[m].second->member = static_cast<int>(m);
      seats[m].second->clique = clique;
    }
    for (const auto& [order, seat] : seats) {
      if (seat) sit_down(*seat);
    }
  }
  split.done = true;
  nccl_lock().changed.notify_all();
}

// What members in other processes have posted.
void find_others(const NcclSeat& seat) {
  NcclClique& clique = *seat.clique;
  if (!clique.complete() && find_members(clique)) check_devices(clique);
  for (auto& [ordinal, split] : clique.splits) {
    if (!split.done && find_parts(clique, ordinal, split)) carry_out(clique, ordinal, split);
  }
}

}  // namespace

namespace mb::cuda_emulation {

void fail_communicators(int device, int error) {
  const std::lock_guard lock(nccl_lock().mutex);
  for (ncclComm_t comm : communicators()) {
    if (comm->seat->device == device && comm->seat->clique)
      comm->seat->clique->error = static_cast<ncclResult_t>(error);
  }
  nccl_lock().changed.notify_all();
}

}  // namespace mb::cuda_emulation

// --- communicators
// ------------------------------------------------------------------------------

ncclResult_t ncclGetVersion(int* version) {
  *version = settings().nccl_version ? settings().nccl_version : NCCL_VERSION_CODE;
  return enter_nccl("ncclGetVersion");
}
const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                    "internal error",
                                    "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                    "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result < ncclNumResults ? kTexts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t error = enter_nccl("ncclGetUniqueId")) return error;
  static std::atomic<int> made{0};
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "emulated clique %d of %lld", ++made,
                static_cast<long long>(mb::now_ns()));  // no two processes have the same
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const ncclResult_t error = enter_nccl("ncclCommInitRankConfig")) return error;
  std::unique_lock lock(nccl_lock().mutex);
  if (std::strncmp(id.internal, "emulated clique ", 16) != 0 || rank < 0 || rank >= ranks ||
      (config && config->magic != 0xcafebeef))
    return ncclInvalidArgument;
  auto clique = cliques()[id.internal].lock();
  if (!clique) cliques()[id.internal] = clique = std::make_shared<NcclClique>(id.internal, ranks);
  if (clique->members.size() != static_cast<std::size_t>(ranks) ||
      clique->members[static_cast<std::size_t>(rank)].joined)
    return ncclInvalidArgument;
  const auto seat = std::make_shared<NcclSeat>(
      NcclSeat{.clique = clique,
               .member = rank,
               .device = current_device(),
               .blocking = !config || config->blocking != 0,
               .polls = config && config->blocking == 0 ? settings().nccl_polls : 0});
  *comm = make(seat);
  sit_down(*seat);
  if (!seat->blocking) return ncclInProgress;
  nccl_lock().changed.wait(lock, [&] { return clique->complete(); });
  return clique->error;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  if (const ncclResult_t error = enter_nccl("ncclCommSplit")) return error;
  std::unique_lock lock(nccl_lock().mutex);
  NcclSeat& parent = *comm->seat;
  if (!ready(parent)) return ncclInvalidArgument;
  const auto clique = parent.clique;
  const std::int64_t ordinal = member_of(parent).splits++;
  NcclSplit& split = clique->splits[ordinal];
  NcclSplit::Part mine{color, key, nullptr};
  *part = nullptr;
  const bool blocking = config ? config->blocking != 0 : parent.blocking;
  if (color != NCCL_SPLIT_NOCOLOR) {
    mine.seat = std::make_shared<NcclSeat>(NcclSeat{.device = parent.device,
                                                    .blocking = blocking,
                                                    .polls = blocking ? 0 : settings().nccl_polls});
    *part = make(mine.seat);
  }
  split.parts.emplace(parent.member, mine);
  if (spans_processes()) post_part(*clique, ordinal, parent.member, mine);
  if (split.parts.size() == clique->members.size()) carry_out(*clique, ordinal, split);
  if (!parent.blocking) return split.done ? ncclSuccess : ncclInProgress;
  nccl_lock().changed.wait(lock, [&] { return split.done || clique->error != ncclSuccess; });
  return clique->error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  enter("ncclCommGetAsyncError");  // answers on a device that is stuck, too
  std::unique_lock lock(nccl_lock().mutex);
  NcclSeat& seat = *comm->seat;
  if (spans_processes() && seat.clique) find_others(seat);
  *state = ncclInProgress;
  if (seat.clique && seat.clique->error != ncclSuccess) {
    *state = seat.clique->error;
    return ncclSuccess;
  }
  if (!seat.clique || !seat.clique->complete()) return ncclSuccess;
  for (const auto& [ordinal, split] : seat.clique->splits) {
    if (!split.done && split.parts.contains(seat.member)) return ncclSuccess;
  }
  if (seat.polls > 0 && --seat.polls > 0) return ncclSuccess;
  *state = ncclSuccess;
  if (const auto pending = std::exchange(seat.pending, {})) pending();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const std::lock_guard lock(nccl_lock().mutex);
  *count = comm->seat->clique ? static_cast<int>(comm->seat->clique->members.size()) : 0;
  return enter_nccl("ncclCommCount");
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const std::lock_guard lock(nccl_lock().mutex);
  *rank = comm->seat->member;
  return enter_nccl("ncclCommUserRank");
}

// With kernels that have not ended the library waits; that a program leaves some is a fault.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ncclResult_t error = enter_nccl("ncclCommDestroy");
  const std::lock_guard lock(nccl_lock().mutex);
  const NcclSeat& seat = *comm->seat;
  if (seat.clique && seat.clique->complete()) {
    const auto& kernels = member_of(seat).kernels;
    if (std::any_of(kernels.begin(), kernels.end(), [](const auto& k) { return !k->done; }))
      fault(seat.device, cudaErrorLaunchFailure, "a communicator is destroyed that is in use");
    forget_kernels(seat);
  }
  communicators().erase(comm);
  delete comm;
  return error;
}

// Ends what this member waits for; the others wait on, until they abort too.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  enter("ncclCommAbort");
  const std::lock_guard lock(nccl_lock().mutex);
  const NcclSeat& seat = *comm->seat;
  if (seat.clique) {
    member_of(seat).aborted = true;
    forget_kernels(seat);
    nccl_lock().changed.notify_all();
  }
  communicators().erase(comm);
  delete comm;
  return ncclSuccess;
}

// --- calls
// --------------------------------------------------------------------------------------

ncclResult_t ncclGroupStart() {
  const ncclResult_t error = enter_nccl("ncclGroupStart");
  ++group_depth;
  return error;
}
ncclResult_t ncclGroupEnd() {
  const ncclResult_t error = enter_nccl("ncclGroupEnd");
  if (group_depth == 0) return ncclInvalidUsage;
  if (error) group_error = error;
  return --group_depth > 0 ? ncclSuccess : launch_group();
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclAllReduce", comm, stream,
             {.kind = NcclKind::all_reduce,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .op = op});
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclReduce", comm, stream,
             {.kind = NcclKind::reduce,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .op = op,
              .root = root});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("ncclBroadcast", comm, stream,
             {.kind = NcclKind::broadcast,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .root = root});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("ncclAllGather", comm, stream,
             {.kind = NcclKind::all_gather, .from = from, .to = to, .count = count, .type = type});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclReduceScatter", comm, stream,
             {.kind = NcclKind::reduce_scatter,
              .from = from,
              .to = to,
              .count = count,
              .type = type,
              .op = op});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, stream,
             {.kind = NcclKind::send, .from = from, .count = count, .type = type, .root = peer});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclRecv", comm, stream,
             {.kind = NcclKind::recv, .to = to, .count = count, .type = type, .root = peer});
}
