// A Comm that passes everything on and counts the bytes of messages by the link they take.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb::test {

struct SentBytes {
  std::int64_t intra = 0, inter = 0;
};

// Collectives other than messages are refused, so that nothing goes uncounted.
class CountingComm final : public Comm {
 public:
  CountingComm(std::unique_ptr<Comm> comm, std::vector<int> nodes, SentBytes& sent)
      : comm_(std::move(comm)), nodes_(std::move(nodes)), sent_(sent) {}
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
    count(bytes, peer);
    comm_->send(data, bytes, peer);
  }
  void recv(void* data, std::int64_t bytes, int peer) override { comm_->recv(data, bytes, peer); }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    count(bytes, to);
    comm_->send_recv(data, bytes, to, into, into_bytes, from);
  }
  void barrier() override { comm_->barrier(); }

 private:
  [[noreturn]] static void refuse() { throw Error("not by messages"); }
  void count(std::int64_t bytes, int peer) {
    if (peer != index()) (nodes_[peer] == nodes_[index()] ? sent_.intra : sent_.inter) += bytes;
  }
  std::unique_ptr<Comm> comm_;
  std::vector<int> nodes_;
  SentBytes& sent_;
};

}  // namespace mb::test
