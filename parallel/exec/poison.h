// Memory that nothing may read, and words that nothing may write, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "parallel/plan/arena.h"
#include "workloads/base/error.h"

namespace mb {

inline constexpr std::byte kPoison{0xff};  // NaN in every floating-point type, -1 in int32

inline void poison(std::byte* at, std::int64_t bytes) {
  std::memset(at, static_cast<int>(kPoison), static_cast<std::size_t>(bytes));
}

// Throws Error unless all is poison from the end of a tensor to where the arena places the next.
inline void check_guard(const std::byte* at, std::int64_t bytes, std::string_view name) {
  const std::int64_t end = (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  require(std::all_of(at + bytes, at + end, [](std::byte b) { return b == kPoison; }),
          "something has written past the end of ", name, ", of ", bytes, " bytes");
}

}  // namespace mb
