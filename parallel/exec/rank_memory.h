// The memory of a live rank: both arenas of its Program, parameters with their initial values.
//
// With `poison`, for tests, whatever holds nothing yet, or nothing any more, is NaN, and the room
// between tensors is guarded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/plan.h"

namespace mb {

class RankMemory {
 public:
  // Keeps references to `plan` and `device`.
  RankMemory(const Plan& plan, int rank, Device& device, const InitOptions& init, bool poison);

  void* address(TensorId id) const {
    const Tensor& tensor = program_.tensors[id];
    return spaces_[tensor.host] + tensor.offset;
  }
  // Values as double.
  std::vector<double> read(TensorId id) const;

  // A tensor has been used for the last time by what this stream does now: poisons it. The stream
  // fails if something has written past its end.
  void bury(int stream, TensorId id);
  // Once a step is over: what lives to its end, and parameters that the next one gathers.
  void bury_the_rest(const Lifetimes& lifetimes);

 private:
  void initialise(const InitOptions& init, bool poison);
  void fill(const Bucket& bucket, TensorId id, bool whole, std::int64_t offset,
            const std::vector<double>& values);
  bool opens_with_gather(const Bucket& bucket) const;
  void poison_slices_of_others();
  void fill_with_poison(void* at, std::int64_t bytes);

  const Plan& plan_;
  const Program& program_;
  int rank_;
  Device& device_;
  std::array<std::byte*, 2> spaces_{};  // of the device and of the second memory space
};

}  // namespace mb
