// Offsets from lifetimes: every tensor of a Program gets its place in one block of memory.
#pragma once

#include "parallel/plan/plan.h"

namespace mb {

inline constexpr std::int64_t kArenaAlignment = 64;

// Sets Tensor::offset, Program::arena_bytes and host_bytes, first fit in list order. An instruction
// on another stream than compute that is the first to write into bytes which compute used before
// gets a wait for that use. Tensors that nothing ever touches take no room.
void place_in_arena(Program& program);

}  // namespace mb
