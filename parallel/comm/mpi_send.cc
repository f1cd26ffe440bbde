// Sends and receives between two members of a group of MPI ranks.
#include <cstddef>
#include <cstdint>
#include <vector>

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
    copy(slot_.part, data, rides);
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

void MpiComm::check_peer(int peer) const {
  require(peer >= 0 && peer < size() && peer != index_, "group ", name_, ": member ", index_,
          " of ", size(), " cannot exchange with ", peer);
}

std::string MpiComm::unequal(std::int64_t sent, int sender, std::int64_t wanted,
                             int receiver) const {
  return cat("group ", name_, ": send of ", sent, " bytes on rank ", members_[sender],
             " meets a receive of ", wanted, " bytes on rank ", members_[receiver]);
}

void MpiComm::send(const void* data, std::int64_t bytes, int peer) {
  link_.enter();
  check_peer(peer);
  Outgoing outgoing(*this, data, bytes, peer);
  std::vector<MpiHandle> requests;
  outgoing.follow(requests);
  link_.wait(requests, Waiting::bytes);
  outgoing.check();
  carry(0, bytes);
}

void MpiComm::recv(void* data, std::int64_t bytes, int peer) {
  link_.enter();
  check_peer(peer);
  SendSlot slot;
  std::vector<MpiHandle> requests;
  link_.recv(&slot, sizeof slot, peer, kSend, group_, requests);
  link_.wait(requests, Waiting::member);
  requests.clear();
  link_.send(&bytes, sizeof bytes, peer, kAnswer, group_, requests);
  const bool equal = slot.head.bytes == bytes;
  if (equal && bytes > small_bytes) link_.recv(data, bytes, peer, kSendBytes, group_, requests);
  link_.wait(requests, Waiting::bytes);
  require(equal, unequal(slot.head.bytes, peer, bytes, index_));
  if (bytes <= small_bytes) copy(data, slot.part, bytes);
}

void MpiComm::send_recv(const void* data, std::int64_t bytes, int to, void* into,
                        std::int64_t into_bytes, int from) {
  link_.enter();
  if (to == index_ && from == index_) {
    require(bytes == into_bytes, "group ", name_, ": send of ", bytes, " bytes on rank ",
            members_[index_], " meets its own receive of ", into_bytes, " bytes");
    copy(into, data, bytes);
    return carry(0, bytes);
  }
  check_peer(to);
  check_peer(from);
  Outgoing outgoing(*this, data, bytes, to);
  SendSlot slot;
  std::vector<MpiHandle> requests;
  link_.recv(&slot, sizeof slot, from, kSend, group_, requests);
  link_.wait(requests, Waiting::member);
  requests.clear();
  link_.send(&into_bytes, sizeof into_bytes, from, kAnswer, group_, requests);
  const bool equal = slot.head.bytes == into_bytes;
  if (equal && into_bytes > small_bytes)
    link_.recv(into, into_bytes, from, kSendBytes, group_, requests);
  outgoing.follow(requests);
  link_.wait(requests, Waiting::bytes);
  outgoing.check();
  require(equal, unequal(slot.head.bytes, from, into_bytes, index_));
  if (into_bytes <= small_bytes) copy(into, slot.part, into_bytes);
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
