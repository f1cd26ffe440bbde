// Carries out lists of steps over the messages of a Comm, chunk by chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/comm/steps.h"

namespace mb {

// A vector of elements in parts as equal as they can be.
struct PartedVector {
  std::int64_t elements;
  int parts;
  DType type;
  std::int64_t begin(int part) const {
    return elements / parts * part + elements % parts * part / parts;
  }
  std::int64_t size(const Runs& runs) const {
    std::int64_t sum = 0;
    for (const Run& run : runs) sum += begin(run.end) - begin(run.begin);
    return sum;
  }
  std::int64_t offset(int part) const { return begin(part) * size_of(type); }
};

// Memory that grows as it has to.
class Scratch {
 public:
  std::byte* of(std::int64_t bytes) {
    if (static_cast<std::int64_t>(data_.size()) < bytes) data_.resize(bytes);
    return data_.data();
  }

 private:
  std::vector<std::byte> data_;
};

class StepRunner {
 public:
  explicit StepRunner(Comm& comm) : comm_(comm) {}

  // All steps on the vector at `work`, but for those that reduce if `reduced` says that collect()
  // has done them. Sums as avg too, not divided.
  void follow(const StepList& list, const PartedVector& vector, void* work, ReduceOp op,
              bool reduced);
  // The reducing steps of a direct list: contributions to what is this member's wait until all are
  // there, and are reduced to `to` in the order of the members.
  void collect(const StepList& list, const PartedVector& vector, const void* from, void* to,
               ReduceOp op);

 private:
  template <class Out, class In, class Arrived>
  void travel(const Step& step, const PartedVector& vector, Out out, In in, Arrived arrived);
  void take(const Step& step, const PartedVector& vector, void* work, ReduceOp op);
  const std::byte* outgoing(const Step& step, const PartedVector& vector, const void* work,
                            std::int64_t first, std::int64_t last);

  Comm& comm_;
  Scratch slots_, out_, in_;
};

}  // namespace mb
