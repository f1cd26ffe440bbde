// A kernel as the cost model sees it.
#pragma once

#include <cstdint>

namespace mb {

struct Kernel {
  enum class Unit : std::uint8_t { matmul, attention, memory };
  Unit unit = Unit::memory;
  double flops = 0, bytes = 0;
};

}  // namespace mb
