// Emulated communicators: who has come, what each member has launched, and where kernels meet. A
// test double; see emulation.h.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace mb::cuda_emulation {

enum class NcclKind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, recv };

struct NcclOperation {
  NcclKind kind = NcclKind::send;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;  // or the peer
  // Which of the communicator's collectives, or of the pair's messages, this is.
  std::int64_t ordinal = 0;

  bool is_message() const { return kind == NcclKind::send || kind == NcclKind::recv; }
};
std::size_t bytes_of(const NcclOperation& operation);
std::string text_of(const NcclOperation& operation);

struct NcclClique;

// What one group of calls, or one call outside of any, does on a stream of a member. Kernels of one
// communicator run one after the other whatever streams they are on, as NCCL's do.
struct NcclKernel {
  std::shared_ptr<NcclClique> clique;
  int member = 0, device = 0;
  std::uint32_t stream = 0;
  std::vector<NcclOperation> operations;  // collectives first, in order; messages are at once
  std::shared_ptr<NcclKernel> previous;   // of the communicator
  bool running = false, blocked = false, done = false;
  std::size_t at = 0;  // the collective that it is in
};

struct NcclMember {
  int device = 0;
  bool joined = false, aborted = false;
  std::vector<std::shared_ptr<NcclKernel>> kernels;
  std::int64_t collectives = 0, splits = 0;
  std::map<int, std::int64_t> sends, receives;  // by peer
};

struct NcclMeeting {
  std::map<int, NcclOperation> arrived;  // by member
  bool done = false;
};
struct NcclMessage {
  const NcclOperation *send = nullptr, *recv = nullptr;
  bool done = false;
};

// A member's side of a communicator, shared with a split that is still under way.
struct NcclSeat {
  std::shared_ptr<NcclClique> clique;  // null until the split is through
  int member = 0, device = 0;
  bool blocking = true;
  int polls = 0;  // of ncclCommGetAsyncError until what is under way is through
  std::function<void()> pending;
};

struct NcclSplit {
  struct Part {
    int color = 0, key = 0;
    std::shared_ptr<NcclSeat> seat;  // null without a color
  };
  std::map<int, Part> parts;  // by member of the parent
  bool done = false;
};

struct NcclClique {
  NcclClique(std::string of_name, int size)
      : name(std::move(of_name)), members(static_cast<std::size_t>(size)) {}
  bool complete() const;

  const std::string name;  // the same for all members
  std::vector<NcclMember> members;
  ncclResult_t error = ncclSuccess;
  std::map<std::int64_t, NcclMeeting> meetings;                        // by ordinal
  std::map<std::tuple<int, int, std::int64_t>, NcclMessage> messages;  // sender, receiver, ordinal
  std::map<std::int64_t, NcclSplit> splits;
  // Who has come to the first call over a connection: of a sender and a receiver, or of all.
  std::map<std::pair<int, int>, std::set<int>> connections;
};

// Gives the operations their ordinals and lets other kernels wait for this one. Then run_kernel()
// on its stream does it: waits for the others of its clique, unless it is aborted meanwhile.
std::shared_ptr<NcclKernel> make_kernel(const NcclSeat& seat, std::uint32_t stream,
                                        std::vector<NcclOperation> operations);
void run_kernel(NcclKernel& kernel);
// The member's communicator ends: what of its kernels has not begun never will.
void forget_kernels(const NcclSeat& seat);

// What the member reads of its buffer.
std::size_t bytes_read(const NcclKernel& kernel, const NcclOperation& operation);

// Does a collective for all members; nothing else touches their buffers.
void carry_out(const std::map<int, NcclOperation>& members);

}  // namespace mb::cuda_emulation
