// Two ways to write memory.
#pragma once

#include <cstdint>

namespace mb {

// Ordinary stores leave what they write in the caches; streaming ones pass them by, so that memory
// need not be read before it is overwritten.
enum class Stores : std::uint8_t { ordinary, streaming };

}  // namespace mb
