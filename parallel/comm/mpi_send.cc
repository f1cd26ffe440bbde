// Sends and receives between two members of a group of MPI ranks.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/comm/arguments.h"
#include "parallel/comm/bytes.h"
#include "parallel/comm/mpi_comm.h"
#include "parallel/comm/mpi_message.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct SendHead {
  std::int64_t bytes = 0;
};
struct SendSlot {
  SendHead head;
  std::byte part[small_bytes];
};

}  // namespace

// A send: its size and, if it is small, its bytes; the receiver answers with the size that it
// wants; where they are equal, larger bytes follow.
class MpiComm::Outgoing {
 public:
  Outgoing(const MpiComm& comm, const void* data, std::int64_t bytes, int peer)
      : comm_(comm), data_(data), bytes_(bytes), peer_(peer) {
    slot_.head.bytes = bytes;
    const std::int64_t rides = bytes <= small_bytes ? bytes : 0;
    copy_bytes(slot_.part, data, rides);
    comm.link_.recv(&wanted_, sizeof wanted_, peer, kAnswer, comm.group_, requests_);
    comm.link_.send(&slot_, static_cast<std::int64_t>(sizeof(SendHead)) + rides, peer, kSend,
                    comm.group_, requests_);
  }

  // Hears the answer; posts what is to follow and appends it to `requests`.
  void follow(std::vector<MpiHandle>& requests) {
    comm_.link_.wait(requests_, Waiting::member);
    if (wanted_ == bytes_ && bytes_ > small_bytes)
      comm_.link_.send(data_, bytes_, peer_, kSendBytes, comm_.group_, requests);
  }
  // Throws Error if the receiver wants another size.
  void check() const {
    require(wanted_ == bytes_, comm_.unequal(bytes_, comm_.index_, wanted_, peer_));
  }

 private:
  const MpiComm& comm_;
  const void* data_;
  const std::int64_t bytes_;
  const int peer_;
  SendSlot slot_;
  std::int64_t wanted_ = 0;
  std::vector<MpiHandle> requests_;
};

// The receiver's side of that.
class MpiComm::Incoming {
 public:
  Incoming(const MpiComm& comm, void* data, std::int64_t bytes, int peer)
      : comm_(comm), data_(data), bytes_(bytes), peer_(peer) {
    comm.link_.recv(&slot_, sizeof slot_, peer, kSend, comm.group_, requests_);
  }

  // Waits for the sender, and answers; posts what is to follow and appends it to `requests`.
  void answer(std::vector<MpiHandle>& requests) {
    comm_.link_.wait(requests_, Waiting::member);
    comm_.link_.send(&bytes_, sizeof bytes_, peer_, kAnswer, comm_.group_, requests);
    if (slot_.head.bytes == bytes_ && bytes_ > small_bytes)
      comm_.link_.recv(data_, bytes_, peer_, kSendBytes, comm_.group_, requests);
  }
  // Once all has come. Throws Error if the sender has another size.
  void take() const {
    require(slot_.head.bytes == bytes_,
            comm_.unequal(slot_.head.bytes, peer_, bytes_, comm_.index_));
    if (bytes_ <= small_bytes) copy_bytes(data_, slot_.part, bytes_);
  }

 private:
  const MpiComm& comm_;
  void* data_;
  const std::int64_t bytes_;
  const int peer_;
  SendSlot slot_;
  std::vector<MpiHandle> requests_;
};

std::string MpiComm::unequal(std::int64_t sent, int sender, std::int64_t wanted,
                             int receiver) const {
  return cat("group ", name_, ": send of ", sent, " bytes on rank ", members_[sender],
             " meets a receive of ", wanted, " bytes on rank ", members_[receiver]);
}

void MpiComm::send(const void* data, std::int64_t bytes, int peer) {
  link_.enter();
  check_peer(name_, peer, index_, size());
  Outgoing outgoing(*this, data, bytes, peer);
  std::vector<MpiHandle> requests;
  outgoing.follow(requests);
  link_.wait(requests, Waiting::bytes);
  outgoing.check();
  carry(0, bytes);
}

void MpiComm::recv(void* data, std::int64_t bytes, int peer) {
  link_.enter();
  check_peer(name_, peer, index_, size());
  Incoming incoming(*this, data, bytes, peer);
  std::vector<MpiHandle> requests;
  incoming.answer(requests);
  link_.wait(requests, Waiting::bytes);
  incoming.take();
}

void MpiComm::send_recv(const void* data, std::int64_t bytes, int to, void* into,
                        std::int64_t into_bytes, int from) {
  link_.enter();
  if (to == index_ && from == index_) {
    require(bytes == into_bytes, "group ", name_, ": send of ", bytes, " bytes on rank ",
            members_[index_], " meets its own receive of ", into_bytes, " bytes");
    copy_bytes(into, data, bytes);
    return carry(0, bytes);
  }
  check_peer(name_, to, index_, size());
  check_peer(name_, from, index_, size());
  Outgoing outgoing(*this, data, bytes, to);
  Incoming incoming(*this, into, into_bytes, from);
  std::vector<MpiHandle> requests;
  incoming.answer(requests);
  outgoing.follow(requests);
  link_.wait(requests, Waiting::bytes);
  outgoing.check();
  incoming.take();
  carry(0, bytes);
}

void MpiComm::send_now(const void* data, std::int64_t bytes, int peer) {
  std::vector<MpiHandle> requests;
  link_.send(data, bytes, peer, kNow, group_, requests);
  link_.look(requests);
}

void MpiComm::recv_now(void* data, std::int64_t bytes, int peer) {
  std::vector<MpiHandle> requests;
  link_.recv(data, bytes, peer, kNow, group_, requests);
  link_.look(requests);
}

}  // namespace mb
