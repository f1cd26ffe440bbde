// Scratch memory of a stream, sized before the first step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "workloads/base/cuda_memory.h"

namespace mb::cuda {

// Several parts that a call uses at once follow each other; every call begins anew.
class Scratch {
 public:
  void begin() { used_ = 0; }
  // `count` elements. Null while calls are only prepared, which grow the room.
  template <class U>
  U* take(std::int64_t count) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t at = used_;
    used_ += (sizeof(U) * count + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > wanted_) wanted_ = used_;
    if (used_ > bytes_) return nullptr;
    return reinterpret_cast<U*>(static_cast<std::byte*>(memory_.at()) + at);
  }
  // Makes the room that was asked for so far. Nothing may be using it.
  void make_room() {
    if (wanted_ <= bytes_) return;
    memory_ = {};
    bytes_ = 0;
    memory_ = Memory(wanted_, "scratch of a stream");
    bytes_ = wanted_;
  }

 private:
  Memory memory_;
  std::size_t bytes_ = 0, wanted_ = 0, used_ = 0;
};

}  // namespace mb::cuda
