// Addresses and copies within buffers that are counted in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mb {

inline std::byte* at(void* data, std::int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
inline const std::byte* at(const void* data, std::int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// Nothing where both are the same; else they do not overlap.
inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace mb
