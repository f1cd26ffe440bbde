// What messages between members of a group of MPI ranks have in common.
#pragma once

#include <cstdint>

namespace mb {

// A part up to this size travels with the message that says what is called.
inline constexpr std::int64_t small_bytes = 2 << 10;

enum MpiTag : int { kHead, kParts, kSend, kAnswer, kSendBytes, kNow };

}  // namespace mb
