// What the processes of a World tell each other beside its ranks' own communication. In a single
// process there is nobody to tell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb {

// All processes make the same calls in the same order, from one thread at a time.
class Processes {
 public:
  // `name` as in World::comm.
  Processes(World& world, const std::string& name) {
    if (static_cast<int>(world.local_ranks().size()) == world.size()) return;
    std::vector<int> all(world.size());
    std::iota(all.begin(), all.end(), 0);
    comm_ = world.comm(name, all, world.local_ranks().front());
  }

  bool several() const { return comm_ != nullptr; }

  // True if `mine` is in any process.
  bool any(bool mine) {
    std::uint8_t flag = mine;
    if (comm_) comm_->all_reduce(&flag, 1, DType::uint8, ReduceOp::max);
    return flag != 0;
  }

  // What each process brings, in the order of ranks, to all.
  template <class T>
  std::vector<std::vector<T>> gather(const std::vector<T>& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!comm_) return {mine};
    std::vector<std::int64_t> counts(comm_->size());
    auto own = static_cast<std::int64_t>(mine.size());
    comm_->all_gather(&own, counts.data(), 1, DType::int64);
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    std::vector<T> padded = mine, all(most * comm_->size());
    padded.resize(most);
    comm_->all_gather(padded.data(), all.data(), most * static_cast<std::int64_t>(sizeof(T)),
                      DType::uint8);
    std::vector<std::vector<T>> parts;
    for (int k = 0; k < comm_->size(); ++k)
      parts.emplace_back(all.begin() + k * most, all.begin() + k * most + counts[k]);
    return parts;
  }

  // The values of the process of `rank`, as many as it has, to all; what the others bring goes.
  template <class T>
  void share(std::vector<T>& values, int rank) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!comm_) return;
    auto count = static_cast<std::int64_t>(values.size());
    comm_->broadcast(&count, 1, DType::int64, rank);
    values.resize(static_cast<std::size_t>(count));
    comm_->broadcast(values.data(), count * static_cast<std::int64_t>(sizeof(T)), DType::uint8,
                     rank);
  }

 private:
  std::unique_ptr<Comm> comm_;
};

}  // namespace mb
