// Comm: how the ranks of one process group exchange bytes. One object per (rank, process group,
// stream).
//
// Calls block until this rank's buffers may be used again. Every member must make the same calls in
// the same order. Once any member of the world aborts, every call that waits, now or later, throws
// Aborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"
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

  // Collectives over elements of any DType. Sums and maxima are bit-equal on all members and do not
  // depend on timing: contributions are added in the order of their index, 16-bit types in fp32 and
  // rounded once, int32 modulo 2^32. Members that make different calls all throw Error.

  // In place over `count` elements.
  virtual void all_reduce(void* data, std::int64_t count, DType type, ReduceOp op) = 0;
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
  virtual void broadcast(void* data, std::int64_t count, DType type, int root) = 0;

  // Rendezvous with the member at `peer`: a send completes when the receiver has copied the bytes.
  // Sends and receives of a pair match in order; a pair whose sizes differ makes both sides throw.
  virtual void send(const void* data, std::int64_t bytes, int peer) = 0;
  virtual void recv(void* data, std::int64_t bytes, int peer) = 0;
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

// All ranks of a run, as threads of one process.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks, Delays delays = {});
  ~ThreadWorld();

  // The Comm of `rank` in the group of `members` (global ranks, the same list on each). `name`
  // tells apart groups with the same members that are used from different streams; a member calls
  // this once per name. Thread-safe.
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members, int rank);

  // The first reason wins; wakes everyone who waits.
  void abort(const std::string& reason);
  bool aborted() const;
  std::string reason() const;  // "" unless aborted

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mb
