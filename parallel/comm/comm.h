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
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int index() const = 0;  // place in the group
  virtual int size() const = 0;

  // In place over `count` elements of fp32 or fp64 (sum, max). The result is bit-equal on all
  // members and does not depend on timing: contributions are added in the order of their index.
  virtual void all_reduce(void* data, std::int64_t count, DType type, ReduceOp op) = 0;
  // Rendezvous with the member at `peer`: a send completes when the receiver has copied the bytes.
  // Sends and receives of a pair match in order; a pair whose sizes differ makes both sides throw.
  virtual void send(const void* data, std::int64_t bytes, int peer) = 0;
  virtual void recv(void* data, std::int64_t bytes, int peer) = 0;
  virtual void barrier() = 0;

  // What this object has reduced and sent so far; a receive counts for its sender. Elements are
  // those of reductions.
  CommCount carried() const { return {calls_, elements_, bytes_}; }

 protected:
  // To be called by an implementation after each reduction and send that has gone through.
  void carry(std::int64_t elements, std::int64_t bytes) {
    ++calls_;
    elements_ += elements;
    bytes_ += bytes;
  }

 private:
  std::atomic<std::int64_t> calls_{0}, elements_{0}, bytes_{0};
};

// All ranks of a run, as threads of one process.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks);
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
