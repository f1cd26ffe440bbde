#include "parallel/comm/algorithms.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "parallel/comm/arguments.h"
#include "parallel/comm/bytes.h"
#include "parallel/comm/reduce.h"
#include "parallel/comm/step_runner.h"
#include "parallel/comm/steps.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

class AlgorithmComm final : public Comm {
 public:
  AlgorithmComm(std::unique_ptr<Comm> comm, Algorithm algorithm, std::vector<int> nodes)
      : comm_(std::move(comm)), algorithm_(algorithm), nodes_(std::move(nodes)), runner_(*comm_) {}

  int index() const override { return comm_->index(); }
  int size() const override { return comm_->size(); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    check_count("all_reduce", count);
    const StepList& list = steps(CollectiveKind::all_reduce);
    const PartedVector vector{count, list.parts, type};
    if (algorithm_ == Algorithm::direct) {
      runner_.collect(list, vector, from, at(to, vector.offset(index())), op);
    } else {
      copy_bytes(to, from, count * size_of(type));
    }
    follow(list, vector, to, op);
    average(to, count, type, op);
    carry(count, count * size_of(type));
  }

  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    if (!has(CollectiveKind::reduce)) return comm_reduce(from, to, count, type, op, root);
    check_count("reduce", count);
    check_root("", "reduce to", root, size());
    const StepList& list =
        steps(CollectiveKind::reduce, root, chunks_of(count * size_of(type), size()));
    const PartedVector vector{count, list.parts, type};
    if (algorithm_ == Algorithm::direct) {
      runner_.collect(list, vector, from, to, op);
    } else {
      void* work = index() == root ? to : work_.of(count * size_of(type));
      copy_bytes(work, from, count * size_of(type));
      follow(list, vector, work, op);
      if (index() == root) average(to, count, type, op);
    }
    carry(count, count * size_of(type));
  }

  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    if (!has(CollectiveKind::all_gather)) {
      comm_->all_gather(from, to, count_each, type);
    } else {
      check_count("all_gather", count_each);
      const PartedVector vector{size() * count_each, size(), type};
      copy_bytes(at(to, vector.offset(index())), from, count_each * size_of(type));
      follow(steps(CollectiveKind::all_gather), vector, to, ReduceOp::sum);
    }
    carry(size() * count_each, size() * count_each * size_of(type));
  }

  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    const std::int64_t bytes = size() * count_each * size_of(type);
    if (!has(CollectiveKind::reduce_scatter)) {
      comm_->reduce_scatter(from, to, count_each, type, op);
      return carry(size() * count_each, bytes);
    }
    check_count("reduce_scatter", count_each);
    const StepList& list = steps(CollectiveKind::reduce_scatter);
    const PartedVector vector{size() * count_each, size(), type};
    if (algorithm_ == Algorithm::direct) {
      runner_.collect(list, vector, from, to, op);
    } else {
      std::byte* work = work_.of(bytes);
      copy_bytes(work, from, bytes);
      follow(list, vector, work, op);
      copy_bytes(to, work + vector.offset(index()), count_each * size_of(type));
      average(to, count_each, type, op);
    }
    carry(size() * count_each, bytes);
  }

  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    if (algorithm_ != Algorithm::direct) {
      comm_->all_to_all(from, to, count_each, type);
    } else {
      check_count("all_to_all", count_each);
      const std::vector<std::int64_t> counts(size(), count_each);
      exchange(from, counts, to, counts, type);
    }
    carry(size() * count_each, size() * count_each * size_of(type));
  }

  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    if (algorithm_ != Algorithm::direct) {
      comm_->all_to_all_v(from, send_counts, to, recv_counts, type);
    } else {
      check_parts("", "send", send_counts, size());
      check_parts("", "receive", recv_counts, size());
      exchange(from, send_counts, to, recv_counts, type);
    }
    const std::int64_t sent =
        std::accumulate(send_counts.begin(), send_counts.end(), std::int64_t{0});
    carry(sent, sent * size_of(type));
  }

  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    if (algorithm_ != Algorithm::direct) {
      comm_->shift(from, to, count, type);
    } else {
      check_count("shift", count);
      const std::int64_t bytes = count * size_of(type);
      comm_->send_recv(from, bytes, (index() + 1) % size(), to, bytes,
                       (index() + size() - 1) % size());
    }
    carry(count, count * size_of(type));
  }

  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    const std::int64_t bytes = count * size_of(type);
    if (!has(CollectiveKind::broadcast)) {
      comm_->broadcast(from, to, count, type, root);
      return carry(count, bytes);
    }
    check_count("broadcast", count);
    check_root("", "broadcast from", root, size());
    if (index() == root) copy_bytes(to, from, bytes);
    const StepList& list = steps(CollectiveKind::broadcast, root, chunks_of(bytes, size()));
    follow(list, {count, list.parts, type}, to, ReduceOp::sum);
    carry(count, bytes);
  }

  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    if (!has(CollectiveKind::gather)) {
      comm_->gather(from, to, count_each, type, root);
      return carry(size() * count_each, bytes);
    }
    check_count("gather", count_each);
    check_root("", "gather to", root, size());
    void* work = index() == root ? to : work_.of(bytes);
    copy_bytes(at(work, index() * each), from, each);
    follow(steps(CollectiveKind::gather, root), {size() * count_each, size(), type}, work,
           ReduceOp::sum);
    carry(size() * count_each, bytes);
  }

  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    if (!has(CollectiveKind::scatter)) {
      comm_->scatter(from, to, count_each, type, root);
      return carry(size() * count_each, bytes);
    }
    check_count("scatter", count_each);
    check_root("", "scatter from", root, size());
    // The root's list receives nothing.
    void* work = index() == root ? const_cast<void*>(from) : work_.of(bytes);
    follow(steps(CollectiveKind::scatter, root), {size() * count_each, size(), type}, work,
           ReduceOp::sum);
    copy_bytes(to, at(work, index() * each), each);
    carry(size() * count_each, bytes);
  }

  void send(const void* data, std::int64_t bytes, int peer) override {
    comm_->send(data, bytes, peer);
    carry(0, bytes);
  }
  void recv(void* data, std::int64_t bytes, int peer) override { comm_->recv(data, bytes, peer); }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    comm_->send_recv(data, bytes, to, into, into_bytes, from);
    carry(0, bytes);
  }
  void barrier() override { comm_->barrier(); }

 private:
  bool has(CollectiveKind kind) const { return has_algorithm(kind, algorithm_); }
  void comm_reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
                   int root) {
    comm_->reduce(from, to, count, type, op, root);
    carry(count, count * size_of(type));
  }

  const StepList& steps(CollectiveKind kind, int root = 0, int chunks = 1) {
    if (algorithm_ != Algorithm::ring) chunks = 1;
    const auto [entry, is_new] = lists_.try_emplace({kind, root, chunks});
    if (is_new) entry->second = steps_of(kind, algorithm_, index(), nodes_, root, chunks);
    return entry->second;
  }

  void follow(const StepList& list, const PartedVector& vector, void* work, ReduceOp op) {
    runner_.follow(list, vector, work, op, algorithm_ == Algorithm::direct);
  }
  // What follow() has added up becomes the mean where that is asked for.
  void average(void* data, std::int64_t count, DType type, ReduceOp op) const {
    if (op == ReduceOp::avg && algorithm_ != Algorithm::direct)
      divide_all(data, count, type, size());
  }

  // Parts of any sizes, each straight to its member.
  void exchange(const void* from, std::span<const std::int64_t> sent, void* to,
                std::span<const std::int64_t> received, DType type) {
    const int n = size(), me = index(), width = size_of(type);
    std::vector<std::int64_t> out(n), in(n);
    std::exclusive_scan(sent.begin(), sent.end(), out.begin(), std::int64_t{0});
    std::exclusive_scan(received.begin(), received.end(), in.begin(), std::int64_t{0});
    for (int d = 0; d < n; ++d) {
      const int peer = (me + d) % n, before = (me + n - d) % n;
      comm_->send_recv(at(from, out[peer] * width), sent[peer] * width, peer,
                       at(to, in[before] * width), received[before] * width, before);
    }
  }

  const std::unique_ptr<Comm> comm_;
  const Algorithm algorithm_;
  const std::vector<int> nodes_;
  std::map<std::tuple<CollectiveKind, int, int>, StepList> lists_;
  StepRunner runner_;
  Scratch work_;
};

}  // namespace

bool has_algorithm(CollectiveKind kind, Algorithm algorithm) {
  return has_steps(kind, algorithm) || algorithm == Algorithm::direct;
}

std::unique_ptr<Comm> with_algorithm(std::unique_ptr<Comm> comm, Algorithm algorithm,
                                     std::span<const int> nodes) {
  require(algorithm != Algorithm::native,
          "algorithm native is the communication library's own; ask the world for it");
  if (algorithm == Algorithm::own) return comm;
  std::vector<int> of_member(nodes.begin(), nodes.end());
  const auto members = static_cast<std::size_t>(comm->size());
  if (of_member.empty() && algorithm != Algorithm::two_level) of_member.resize(members);
  require(of_member.size() == members, "algorithm ", name_of(algorithm), " has nodes for ",
          of_member.size(), " members; give one for each of ", members);
  return std::make_unique<AlgorithmComm>(std::move(comm), algorithm, std::move(of_member));
}

}  // namespace mb
