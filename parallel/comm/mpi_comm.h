// A process group of MPI ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/comm.h"
#include "parallel/comm/mpi_link.h"

namespace mb {

// By messages straight from member to member: what they bring is reduced by the owner of each
// part, in the order of members, as threads do. A call begins with a small message from everybody
// to everybody that says what is called, and carries parts that are small themselves: members that
// make different calls find out. Every member sends n - 1 messages, which suits groups of tens.
class MpiComm : public Comm {
 public:
  // Meets the other members. Keeps a reference to `link`.
  MpiComm(const MpiLink& link, std::string name, std::vector<int> members, int index);
  ~MpiComm() override;

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op) override;
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override;
  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override;
  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override;
  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override;
  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override;
  void shift(const void* from, void* to, std::int64_t count, DType type) override;
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override;
  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override;
  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override;
  void send(const void* data, std::int64_t bytes, int peer) override;
  void recv(void* data, std::int64_t bytes, int peer) override;
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override;
  void barrier() override;

  // A small message by itself, looked for all the time: for clocks.
  void send_now(const void* data, std::int64_t bytes, int peer);
  void recv_now(void* data, std::int64_t bytes, int peer);

 protected:
  const MpiLink& link_;
  const std::string name_;
  const std::vector<int> members_;
  const int index_;
  MpiHandle group_{};

 private:
  struct Head;
  struct Slot;
  class Outgoing;
  class Incoming;
  // What goes to each member and comes from it, the member itself included. A small part that has
  // no place to come to stays in its slot.
  struct Out {
    const void* data = nullptr;
    std::int64_t bytes = 0;
  };
  struct In {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };

  void clear_parts();
  void exchange(const Entry& mine);
  void post_heads(const Entry& mine);
  void check_entries(const Entry& mine) const;
  std::string disagreement(int peer, int element_bytes) const;
  void move_parts(bool small_too, const std::vector<bool>* left_out);
  const void* brought(int member, const void* own) const;
  void reduce_brought(const void* own, void* to, std::int64_t count, DType type, ReduceOp op);
  void reduce_parts(const Entry& mine, void* to);
  std::int64_t part_begin(int member, std::int64_t count, DType type) const;
  std::string unequal(std::int64_t sent, int sender, std::int64_t wanted, int receiver) const;

  std::vector<Out> outs_;
  std::vector<In> ins_;
  std::unique_ptr<Slot[]> sent_, received_;
  std::vector<MpiHandle> requests_;
  std::vector<const void*> sources_;
  std::unique_ptr<std::byte[]> scratch_;
  std::int64_t scratch_bytes_ = 0;
};

// The same with the library's own collectives: directly, blocking, in whatever order they reduce.
std::unique_ptr<Comm> make_native_mpi_comm(const MpiLink& link, const std::string& name,
                                           const std::vector<int>& members, int index);

}  // namespace mb
