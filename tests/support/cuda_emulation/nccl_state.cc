// Kernels of emulated communicators meet, and what would never meet is found. A test double; see
// emulation.h.
#include "tests/support/cuda_emulation/nccl_state.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "tests/support/cuda_emulation/nccl_lock.h"
#include "tests/support/cuda_emulation/nccl_processes.h"
#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"

namespace mb::cuda_emulation {
namespace {

std::set<NcclKernel*>& kernels_under_way() {
  static auto* const kernels = new std::set<NcclKernel*>;
  return *kernels;
}

std::string text_of(const NcclKernel& kernel) {
  const NcclOperation& operation =
      kernel.operations[std::min(kernel.at, kernel.operations.size() - 1)];
  return cat(text_of(operation), " by member ", kernel.member, " of ",
             kernel.clique->members.size(), " on device ", kernel.device, " stream ",
             kernel.stream);
}

// What the kernel waits for is not going to come, or not as it should.
void give_up(NcclKernel& kernel, const std::string& text) {
  fault(kernel.device, cudaErrorLaunchFailure, text);
  kernel.clique->error = ncclInvalidUsage;
  nccl_lock().changed.notify_all();
}

NcclMessage& message_of(const NcclKernel& kernel, const NcclOperation& operation) {
  const bool sends = operation.kind == NcclKind::send;
  return kernel.clique->messages[{sends ? kernel.member : operation.root,
                                  sends ? operation.root : kernel.member, operation.ordinal}];
}

template <class Is>
NcclKernel* kernel_with(const NcclMember& member, Is is) {
  for (const auto& kernel : member.kernels) {
    if (std::any_of(kernel->operations.begin(), kernel->operations.end(), is)) return kernel.get();
  }
  return nullptr;
}

// The kernels that have to get on before this one can, as far as they have been launched.
std::vector<NcclKernel*> awaited_by(const NcclKernel& kernel) {
  std::vector<NcclKernel*> awaited;
  if (!kernel.running) {
    for (NcclKernel* other : kernels_under_way())
      if (other->running && other->device == kernel.device && other->stream == kernel.stream)
        awaited.push_back(other);
    return awaited;
  }
  if (kernel.previous && !kernel.previous->done) return {kernel.previous.get()};
  NcclClique& clique = *kernel.clique;
  const auto add = [&](NcclKernel* other) {
    if (other) awaited.push_back(other);
  };
  if (const NcclOperation& here = kernel.operations[kernel.at]; !here.is_message()) {
    const NcclMeeting& meeting = clique.meetings[here.ordinal];
    for (std::size_t m = 0; m < clique.members.size(); ++m) {
      if (meeting.arrived.contains(static_cast<int>(m))) continue;
      add(kernel_with(clique.members[m], [&](const NcclOperation& other) {
        return !other.is_message() && other.ordinal == here.ordinal;
      }));
    }
    return awaited;
  }
  for (const NcclOperation& mine : kernel.operations) {
    if (!mine.is_message() || message_of(kernel, mine).done) continue;
    const auto wanted = mine.kind == NcclKind::send ? NcclKind::recv : NcclKind::send;
    add(kernel_with(clique.members[static_cast<std::size_t>(mine.root)],
                    [&](const NcclOperation& other) {
                      return other.kind == wanted && other.root == kernel.member &&
                             other.ordinal == mine.ordinal;
                    }));
  }
  return awaited;
}

// A circle of kernels from `path`.front() to itself; `path` is what leads to where the search is.
bool closes_circle(std::vector<NcclKernel*>& path, std::set<NcclKernel*>& seen) {
  for (NcclKernel* next : awaited_by(*path.back())) {
    if (next == path.front()) return true;
    if (!seen.insert(next).second) continue;
    path.push_back(next);
    if (closes_circle(path, seen)) return true;
    path.pop_back();
  }
  return false;
}

// Kernels wait for all that they wait for, so that any circle is one for ever.
void find_deadlock() {
  for (NcclKernel* kernel : kernels_under_way()) {
    if (!kernel->blocked || kernel->clique->error != ncclSuccess) continue;
    std::vector<NcclKernel*> path = {kernel};
    std::set<NcclKernel*> seen;
    if (!closes_circle(path, seen)) continue;
    std::string text = "NCCL deadlock:";
    for (std::size_t k = 0; k < path.size(); ++k)
      text += cat(k == 0 ? " " : ", which waits for ", text_of(*path[k]));
    give_up(*kernel, text + ", which waits for the first");
    for (NcclKernel* other : path) other->clique->error = ncclInvalidUsage;
  }
}

// Waits until `is_over`; false where this member is aborted or the clique has an error before.
template <class IsOver>
bool wait_for(NcclKernel& kernel, std::unique_lock<std::mutex>& lock, IsOver is_over) {
  const auto given_up = [&] {
    return kernel.clique->members[static_cast<std::size_t>(kernel.member)].aborted ||
           kernel.clique->error != ncclSuccess;
  };
  if (!is_over() && !given_up()) {
    kernel.blocked = true;
    find_deadlock();
    nccl_lock().changed.wait(lock, [&] { return is_over() || given_up(); });
    kernel.blocked = false;
  }
  return is_over() && !given_up();
}

std::string mismatch(const NcclOperation& a, const NcclOperation& b) {
  const bool rooted = a.kind == NcclKind::reduce || a.kind == NcclKind::broadcast;
  const bool reduces = a.kind != NcclKind::broadcast && a.kind != NcclKind::all_gather;
  if (a.kind == b.kind && a.count == b.count && a.type == b.type && (!rooted || a.root == b.root) &&
      (!reduces || a.op == b.op))
    return "";
  return cat(text_of(a), " meets ", text_of(b));
}

bool run_collective(NcclKernel& kernel, const NcclOperation& operation,
                    std::unique_lock<std::mutex>& lock) {
  NcclClique& clique = *kernel.clique;
  NcclMeeting& meeting = clique.meetings[operation.ordinal];
  if (!meeting.arrived.empty()) {
    const auto& [member, other] = *meeting.arrived.begin();
    if (const std::string text = mismatch(other, operation); !text.empty()) {
      give_up(kernel, cat(text, ", member ", member, " and member ", kernel.member));
      return false;
    }
  }
  meeting.arrived.emplace(kernel.member, operation);
  if (meeting.arrived.size() == clique.members.size()) {
    carry_out(meeting.arrived);
    meeting.done = true;
    nccl_lock().changed.notify_all();
  }
  if (wait_for(kernel, lock, [&] { return meeting.done; })) return true;
  if (!meeting.done) meeting.arrived.erase(kernel.member);
  return false;
}

void deliver(NcclKernel& kernel, NcclMessage& message) {
  if (bytes_of(*message.send) != bytes_of(*message.recv)) {
    give_up(kernel, cat(text_of(*message.send), " meets ", text_of(*message.recv)));
    return;
  }
  if (const std::size_t bytes = bytes_of(*message.send))
    std::memmove(message.recv->to, message.send->from, bytes);
  message.done = true;
  nccl_lock().changed.notify_all();
}

void run_messages(NcclKernel& kernel, std::unique_lock<std::mutex>& lock) {
  for (const NcclOperation& operation : kernel.operations) {
    if (!operation.is_message()) continue;
    NcclMessage& message = message_of(kernel, operation);
    (operation.kind == NcclKind::send ? message.send : message.recv) = &operation;
    if (message.send && message.recv) deliver(kernel, message);
  }
  const bool over = wait_for(kernel, lock, [&] {
    return std::all_of(kernel.operations.begin(), kernel.operations.end(), [&](const auto& mine) {
      return !mine.is_message() || message_of(kernel, mine).done;
    });
  });
  for (const NcclOperation& mine : kernel.operations) {
    if (over || !mine.is_message()) continue;
    NcclMessage& message = message_of(kernel, mine);
    (mine.kind == NcclKind::send ? message.send : message.recv) = nullptr;
  }
}

std::size_t elements_read(const NcclKernel& kernel, const NcclOperation& operation) {
  if (operation.kind == NcclKind::recv) return 0;
  if (operation.kind == NcclKind::broadcast && operation.root != kernel.member) return 0;
  if (operation.kind == NcclKind::reduce_scatter)
    return operation.count * kernel.clique->members.size();
  return operation.count;
}
std::size_t elements_written(const NcclKernel& kernel, const NcclOperation& operation) {
  if (operation.kind == NcclKind::send) return 0;
  if (operation.kind == NcclKind::reduce && operation.root != kernel.member) return 0;
  if (operation.kind == NcclKind::all_gather)
    return operation.count * kernel.clique->members.size();
  return operation.count;
}

bool reaches_its_buffers(const NcclKernel& kernel) {
  return std::all_of(
      kernel.operations.begin(), kernel.operations.end(), [&](const NcclOperation& operation) {
        const std::size_t each = operation.count ? bytes_of(operation) / operation.count : 0;
        const std::string name = text_of(operation);
        return check_access(kernel.device, operation.from, each * elements_read(kernel, operation),
                            name) &&
               check_access(kernel.device, operation.to, each * elements_written(kernel, operation),
                            name);
      });
}

}  // namespace

std::size_t bytes_of(const NcclOperation& operation) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return operation.count * kBytes[operation.type];
}

std::string text_of(const NcclOperation& operation) {
  constexpr const char* kKinds[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                    "reduce_scatter", "send",   "receive"};
  constexpr const char* kTypes[] = {"int8",   "uint8", "int32", "uint32", "int64",
                                    "uint64", "fp16",  "fp32",  "fp64",   "bf16"};
  constexpr const char* kOps[] = {"sum", "prod", "max", "min", "avg"};
  std::string text = cat(kKinds[static_cast<int>(operation.kind)], " of ", operation.count, ' ',
                         kTypes[operation.type]);
  switch (operation.kind) {
    case NcclKind::all_reduce:
    case NcclKind::reduce_scatter:
      return cat(text, ' ', kOps[operation.op]);
    case NcclKind::reduce:
      return cat(text, ' ', kOps[operation.op], " to member ", operation.root);
    case NcclKind::broadcast:
      return cat(text, " from member ", operation.root);
    case NcclKind::send:
      return cat(text, " to member ", operation.root);
    case NcclKind::recv:
      return cat(text, " from member ", operation.root);
    case NcclKind::all_gather:
      return text;
  }
  return text;
}

std::size_t bytes_read(const NcclKernel& kernel, const NcclOperation& operation) {
  return operation.count ? bytes_of(operation) / operation.count * elements_read(kernel, operation)
                         : 0;
}

NcclLock& nccl_lock() {
  static auto* const lock = new NcclLock;
  return *lock;
}

bool NcclClique::complete() const {
  return std::all_of(members.begin(), members.end(),
                     [](const NcclMember& member) { return member.joined; });
}

std::shared_ptr<NcclKernel> make_kernel(const NcclSeat& seat, std::uint32_t stream,
                                        std::vector<NcclOperation> operations) {
  NcclMember& member = seat.clique->members[static_cast<std::size_t>(seat.member)];
  std::stable_partition(operations.begin(), operations.end(),
                        [](const NcclOperation& operation) { return !operation.is_message(); });
  for (NcclOperation& operation : operations) {
    operation.ordinal = operation.kind == NcclKind::send   ? member.sends[operation.root]++
                        : operation.kind == NcclKind::recv ? member.receives[operation.root]++
                                                           : member.collectives++;
  }
  auto kernel = std::make_shared<NcclKernel>(NcclKernel{.clique = seat.clique,
                                                        .member = seat.member,
                                                        .device = seat.device,
                                                        .stream = stream,
                                                        .operations = std::move(operations)});
  if (!member.kernels.empty()) kernel->previous = member.kernels.back();
  if (seat.clique->error == ncclSuccess)
    std::erase_if(member.kernels, [](const auto& earlier) { return earlier->done; });
  member.kernels.push_back(kernel);
  kernels_under_way().insert(kernel.get());
  find_deadlock();
  return kernel;
}

void forget_kernels(const NcclSeat& seat) {
  auto& kernels = seat.clique->members[static_cast<std::size_t>(seat.member)].kernels;
  for (const auto& kernel : kernels)
    if (!kernel->running) kernels_under_way().erase(kernel.get());
  kernels.clear();
}

void run_kernel(NcclKernel& kernel) {
  const bool reaches = reaches_its_buffers(kernel);
  std::unique_lock lock(nccl_lock().mutex);
  kernel.running = true;
  bool goes_on =
      reaches && wait_for(kernel, lock, [&] { return !kernel.previous || kernel.previous->done; });
  for (; goes_on && kernel.at < kernel.operations.size(); ++kernel.at) {
    const NcclOperation& operation = kernel.operations[kernel.at];
    if (spans_processes()) {
      const std::string wrong = meet_processes(kernel, operation, lock);
      if (!wrong.empty()) give_up(kernel, wrong);
      if (operation.is_message()) break;
      continue;
    }
    if (operation.is_message()) {
      run_messages(kernel, lock);
      break;
    }
    goes_on = run_collective(kernel, operation, lock);
  }
  kernel.done = true;
  kernel.previous.reset();
  kernels_under_way().erase(&kernel);
  nccl_lock().changed.notify_all();
}

}  // namespace mb::cuda_emulation
