// Comm: how the ranks of one process group exchange bytes. One object per (rank, process group,
// stream).
//
// Calls block until this rank's buffers may be used again, unless World::comm_on() made the Comm.
// Every member must make the same calls in the same order. Once any member of the world aborts,
// every call that waits, now or later, throws Aborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/native_stream.h"
#include "workloads/base/dtype.h"
#include "workloads/base/error.h"

namespace mb {

class Aborted : public Error {
 public:
  using Error::Error;
};

// What has passed through a Comm so far; exact, for ledgers.
struct CommCount {
  std::int64_t calls = 0, elements = 0, bytes = 0;
  CommCount& operator+=(const CommCount& more) {
    calls += more.calls;
    elements += more.elements;
    bytes += more.bytes;
    return *this;
  }
  bool operator==(const CommCount&) const = default;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int index() const = 0;  // place in the group
  virtual int size() const = 0;

  // Collectives over elements of any DType. Reductions are bit-equal on all members and do not
  // depend on timing: contributions are taken in the order of their index, 16-bit types in fp32 and
  // rounded once, integers modulo 2 to the number of their bits. Members that make different calls
  // all throw Error, or where the members are processes, at least one does. What only the root
  // reads or writes may be null elsewhere.

  // `count` elements; in place where from == to.
  virtual void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                          ReduceOp op) = 0;
  void all_reduce(void* data, std::int64_t count, DType type, ReduceOp op) {
    all_reduce(data, data, count, type, op);
  }
  // The same to the root alone.
  virtual void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
                      int root) = 0;
  // `count_each` elements of every member, one member after the other, to `to`. In place where
  // from == to + index() * count_each.
  virtual void all_gather(const void* from, void* to, std::int64_t count_each, DType type) = 0;
  // The sum's or maximum's index()-th part of size() * count_each elements. In place where to ==
  // from + index() * count_each; the other parts of `from` stay as they are.
  virtual void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                              ReduceOp op) = 0;
  // Part p of `from` to member p, whose part index() of `to` it becomes. Not in place.
  virtual void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) = 0;
  // The same with parts of any sizes, one right after the other. Where the two members of a part
  // give different sizes, both throw Error.
  virtual void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                            std::span<const std::int64_t> recv_counts, DType type) = 0;
  // A step of a ring: to member index() + 1 and from member index() - 1, modulo size(). Not in
  // place.
  virtual void shift(const void* from, void* to, std::int64_t count, DType type) = 0;
  // `from` of the root to `to` of everybody; in place where the root's are equal.
  virtual void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) = 0;
  void broadcast(void* data, std::int64_t count, DType type, int root) {
    broadcast(data, data, count, type, root);
  }
  // `count_each` elements of every member, one member after the other, to the root's `to`. In place
  // where the root's from == to + root * count_each.
  virtual void gather(const void* from, void* to, std::int64_t count_each, DType type,
                      int root) = 0;
  // Part k of the root's `from` to member k. In place where the root's to == from + root *
  // count_each.
  virtual void scatter(const void* from, void* to, std::int64_t count_each, DType type,
                       int root) = 0;

  // Rendezvous with the member at `peer`: a send completes when the receiver has copied the bytes.
  // Sends and receives of a pair match in order; a pair whose sizes differ makes both sides throw.
  virtual void send(const void* data, std::int64_t bytes, int peer) = 0;
  virtual void recv(void* data, std::int64_t bytes, int peer) = 0;
  // Both at once, so that neighbours may all send before any receives. The two peers may be the
  // same, or this member itself.
  virtual void send_recv(const void* data, std::int64_t bytes, int to, void* into,
                         std::int64_t into_bytes, int from) = 0;
  virtual void barrier() = 0;

  // What this object has carried so far; a receive counts for its sender. Elements are those of a
  // collective's full vector, as nccl-tests takes its size (all_to_all_v: what this member sends),
  // and 0 of a send.
  CommCount carried() const { return {calls_, elements_, bytes_}; }

 protected:
  // To be called by an implementation after each collective and send that has gone through.
  void carry(std::int64_t elements, std::int64_t bytes) {
    ++calls_;
    elements_ += elements;
    bytes_ += bytes;
  }

 private:
  std::atomic<std::int64_t> calls_{0}, elements_{0}, bytes_{0};
};

// For tests: before each call, a member sleeps for up to `most_us` microseconds, by a pseudo-random
// function of (seed, rank, number of the call).
struct Delays {
  std::uint64_t seed = 0;
  int most_us = 0;  // 0: no call sleeps
};

// All ranks of a run: which of them live in this process, and how they come by their Comms.
class World {
 public:
  virtual ~World() = default;

  virtual int size() const = 0;
  // Of this process, ascending: all, or where there are several processes, one.
  virtual const std::vector<int>& local_ranks() const = 0;

  // The Comm of the local `rank` in the group of `members` (global ranks, the same list on each).
  // `name` tells apart groups with the same members that are used from different streams; a member
  // calls this once per name, and all members of several groups in the same order. Thread-safe.
  virtual std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                                     int rank) = 0;
  // The same by the communication library's own collectives, whatever order they reduce in; as
  // comm() where there is no such library.
  virtual std::unique_ptr<Comm> native_comm(const std::string& name,
                                            const std::vector<int>& members, int rank) {
    return comm(name, members, rank);
  }

  // Whether ranks on devices communicate by Comms of comm_on() (NCCL). Else theirs are those of
  // comm(), and what a device holds goes through memory of the host.
  virtual bool enqueues() const { return false; }
  // All ranks together, before a rank's first comm_on(): the groups that `rank` will ask it for,
  // and any stream of its device. Does nothing where Comms do not enqueue.
  struct GroupName {
    std::string name;
    std::vector<int> members;
  };
  virtual void announce(const NativeStream& stream, const std::vector<GroupName>& groups,
                        int rank) {
    (void)stream, (void)groups, (void)rank;
  }
  // As comm(), for one stream of the rank's device: operands are device memory, calls enqueue on
  // the stream and return, sizes of all_to_all_v are on the host. All calls of the Comm come from
  // the thread that enqueues on this stream. Sends of one rank to another in a pipeline have a
  // group of these two, sender first, of their own. abort() must end what has been enqueued.
  virtual std::unique_ptr<Comm> comm_on(const NativeStream& stream, const std::string& name,
                                        const std::vector<int>& members, int rank) {
    (void)stream, (void)members, (void)rank;
    throw Error(cat("no Comm of this World enqueues: ", name));
  }

  // The first reason wins; wakes everyone who waits. Where ranks are processes, ends them all.
  virtual void abort(const std::string& reason) = 0;
  virtual bool aborted() const = 0;
  virtual std::string reason() const = 0;  // "" unless aborted

  virtual std::string host_of(int rank) const = 0;
  // Equal for ranks that share cores and memory, whatever their hosts are called.
  virtual std::string machine_of(int rank) const { return host_of(rank); }

  // Where another process stands: what its rank is at, and for how long it has ended nothing.
  struct Standing {
    std::string text;
    double idle_s = 0;
  };
  // `answer` tells others of this process, at any time and from any thread, until it is replaced
  // (by {}: no run is under way).
  virtual void answer_with(std::function<Standing()> answer) { (void)answer; }
  // Of every rank of another process; nullopt for one that has not answered within `wait_s`.
  virtual std::map<int, std::optional<Standing>> ask_others(double wait_s) {
    (void)wait_s;
    return {};
  }

  // Brings the clocks of all ranks together anew; all processes call it together, at times when
  // nothing else communicates. Before the first call and in a single process clocks are as they
  // are.
  virtual void align_clocks() {}
  // A reading of this process's now_ns() on the clock of rank 0, and how far off it may be.
  virtual std::int64_t common_ns(std::int64_t local_ns) const { return local_ns; }
  virtual std::int64_t clock_uncertainty_ns() const { return 0; }
};

// All ranks as threads of one process.
class ThreadWorld final : public World {
 public:
  explicit ThreadWorld(int ranks, Delays delays = {});
  ~ThreadWorld() override;

  int size() const override { return static_cast<int>(local_ranks_.size()); }
  const std::vector<int>& local_ranks() const override { return local_ranks_; }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override;
  void abort(const std::string& reason) override;
  bool aborted() const override;
  std::string reason() const override;
  std::string host_of(int rank) const override;

 private:
  std::vector<int> local_ranks_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mb
