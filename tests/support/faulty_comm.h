// A World whose Comms do what a fault tells them to: doubles for tests of checks and verdicts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb::test {

// Passes everything on. `before` and `after` see every call of a collective that moves elements,
// with its output and the bytes of it that this member has; `before` says whether it goes ahead.
struct Fault {
  std::function<bool(int rank, int call)> before = [](int, int) { return true; };
  std::function<void(int rank, int call, std::byte* to, std::int64_t bytes)> after =
      [](int, int, std::byte*, std::int64_t) {};
};

class FaultyComm final : public Comm {
 public:
  FaultyComm(std::unique_ptr<Comm> comm, int rank, const Fault& fault)
      : comm_(std::move(comm)), rank_(rank), fault_(fault) {}
  int index() const override { return comm_->index(); }
  int size() const override { return comm_->size(); }
  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    call(to, count * size_of(type), [&] { comm_->all_reduce(from, to, count, type, op); });
  }
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    call(root == index() ? to : nullptr, count * size_of(type),
         [&] { comm_->reduce(from, to, count, type, op, root); });
  }
  void all_gather(const void* from, void* to, std::int64_t count, DType type) override {
    call(to, size() * count * size_of(type), [&] { comm_->all_gather(from, to, count, type); });
  }
  void reduce_scatter(const void* from, void* to, std::int64_t count, DType type,
                      ReduceOp op) override {
    call(to, count * size_of(type), [&] { comm_->reduce_scatter(from, to, count, type, op); });
  }
  void all_to_all(const void* from, void* to, std::int64_t count, DType type) override {
    call(to, size() * count * size_of(type), [&] { comm_->all_to_all(from, to, count, type); });
  }
  void all_to_all_v(const void* from, std::span<const std::int64_t> sent, void* to,
                    std::span<const std::int64_t> received, DType type) override {
    std::int64_t count = 0;
    for (const std::int64_t part : received) count += part;
    call(to, count * size_of(type), [&] { comm_->all_to_all_v(from, sent, to, received, type); });
  }
  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    call(to, count * size_of(type), [&] { comm_->shift(from, to, count, type); });
  }
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    call(to, count * size_of(type), [&] { comm_->broadcast(from, to, count, type, root); });
  }
  void gather(const void* from, void* to, std::int64_t count, DType type, int root) override {
    call(root == index() ? to : nullptr, size() * count * size_of(type),
         [&] { comm_->gather(from, to, count, type, root); });
  }
  void scatter(const void* from, void* to, std::int64_t count, DType type, int root) override {
    call(to, count * size_of(type), [&] { comm_->scatter(from, to, count, type, root); });
  }
  void send(const void* data, std::int64_t bytes, int peer) override {
    comm_->send(data, bytes, peer);
  }
  void recv(void* data, std::int64_t bytes, int peer) override { comm_->recv(data, bytes, peer); }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    comm_->send_recv(data, bytes, to, into, into_bytes, from);
  }
  void barrier() override { comm_->barrier(); }

 private:
  template <class Fn>
  void call(void* to, std::int64_t bytes, Fn fn) {
    const int number = calls_++;
    if (!fault_.before(rank_, number)) return;
    fn();
    if (to) fault_.after(rank_, number, static_cast<std::byte*>(to), bytes);
  }

  std::unique_ptr<Comm> comm_;
  int rank_;
  const Fault& fault_;
  int calls_ = 0;
};

// Threads; the Comms that are called `name` are faulty.
class FaultyWorld final : public World {
 public:
  FaultyWorld(int ranks, std::string name, Fault fault)
      : world_(ranks), name_(std::move(name)), fault_(std::move(fault)) {}
  int size() const override { return world_.size(); }
  const std::vector<int>& local_ranks() const override { return world_.local_ranks(); }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override {
    auto comm = world_.comm(name, members, rank);
    if (name != name_) return comm;
    return std::make_unique<FaultyComm>(std::move(comm), rank, fault_);
  }
  void abort(const std::string& reason) override { world_.abort(reason); }
  bool aborted() const override { return world_.aborted(); }
  std::string reason() const override { return world_.reason(); }
  std::string host_of(int rank) const override { return world_.host_of(rank); }

 private:
  ThreadWorld world_;
  std::string name_;
  Fault fault_;
};

}  // namespace mb::test
