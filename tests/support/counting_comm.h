// A Comm that passes everything on and counts the bytes of messages by the link they take.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb::test {

struct CountedBytes {
  std::int64_t intra = 0, inter = 0;
};
struct CountedWire {
  CountedBytes sent, received;
};

// Collectives other than messages are refused, so that nothing goes uncounted.
class CountingComm final : public Comm {
 public:
  CountingComm(std::unique_ptr<Comm> comm, std::vector<int> nodes, CountedWire& wire)
      : comm_(std::move(comm)), nodes_(std::move(nodes)), wire_(wire) {}
  int index() const override { return comm_->index(); }
  int size() const override { return comm_->size(); }
  void all_reduce(const void*, void*, std::int64_t, DType, ReduceOp) override { refuse(); }
  void reduce(const void*, void*, std::int64_t, DType, ReduceOp, int) override { refuse(); }
  void all_gather(const void*, void*, std::int64_t, DType) override { refuse(); }
  void reduce_scatter(const void*, void*, std::int64_t, DType, ReduceOp) override { refuse(); }
  void all_to_all(const void*, void*, std::int64_t, DType) override { refuse(); }
  void all_to_all_v(const void*, std::span<const std::int64_t>, void*,
                    std::span<const std::int64_t>, DType) override {
    refuse();
  }
  void shift(const void*, void*, std::int64_t, DType) override { refuse(); }
  void broadcast(const void*, void*, std::int64_t, DType, int) override { refuse(); }
  void gather(const void*, void*, std::int64_t, DType, int) override { refuse(); }
  void scatter(const void*, void*, std::int64_t, DType, int) override { refuse(); }
  void send(const void* data, std::int64_t bytes, int peer) override {
    count(wire_.sent, bytes, peer);
    comm_->send(data, bytes, peer);
  }
  void recv(void* data, std::int64_t bytes, int peer) override {
    count(wire_.received, bytes, peer);
    comm_->recv(data, bytes, peer);
  }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    count(wire_.sent, bytes, to);
    count(wire_.received, into_bytes, from);
    comm_->send_recv(data, bytes, to, into, into_bytes, from);
  }
  void barrier() override { comm_->barrier(); }

 private:
  [[noreturn]] static void refuse() { throw Error("not by messages"); }
  void count(CountedBytes& way, std::int64_t bytes, int peer) {
    if (peer != index()) (nodes_[peer] == nodes_[index()] ? way.intra : way.inter) += bytes;
  }
  std::unique_ptr<Comm> comm_;
  std::vector<int> nodes_;
  CountedWire& wire_;
};

}  // namespace mb::test
