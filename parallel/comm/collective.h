// The kinds of collectives and what is true of each: names, bus-bandwidth factors, wire traffic.
#pragma once

#include <cstdint>
#include <string_view>

namespace mb {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  all_to_all_v,  // parts of any sizes
  shift          // a step of a ring: everybody sends to the next member
};
inline constexpr int kCollectiveKinds = 7;
enum class ReduceOp : std::uint8_t { sum, max };

std::string_view name_of(CollectiveKind kind);
std::string_view name_of(ReduceOp op);

// busbw = factor * algbw, as nccl-tests' PERFORMANCE.md defines it for n ranks, where algbw = size
// / time and size is the full vector (all-reduce, broadcast), the total output (all-gather), the
// total input (reduce-scatter, all-to-all; what a member sends where parts
// differ and for a shift). Undefined, and so Error, for n < 2.
double busbw_factor(CollectiveKind kind, int ranks);

}  // namespace mb
