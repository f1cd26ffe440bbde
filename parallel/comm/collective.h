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
  shift,         // a step of a ring: everybody sends to the next member
  reduce,        // of these three, one member is the root
  gather,
  scatter
};
inline constexpr int kCollectiveKinds = 10;
// avg divides the sum by the number of members: floating-point types before they are rounded,
// integers towards zero.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };

// How the bytes of a collective go. `own` is the communicator's own way: one pass over the peers'
// memory between threads, over messages the direct exchange below; `native` the communication
// library's, whatever it takes. All others go over send_recv.
enum class Algorithm : std::uint8_t {
  own,
  native,
  direct,            // every part straight to its owner, and back
  ring,              // n - 1 steps each way
  halving_doubling,  // log2 n steps, other counts of members folded in (Thakur et al., 2005)
  tree,              // binomial
  two_level          // within each node, between the nodes, within each node
};
inline constexpr int kAlgorithms = 7;
std::string_view name_of(Algorithm algorithm);

std::string_view name_of(CollectiveKind kind);
std::string_view name_of(ReduceOp op);

// busbw = factor * algbw, as nccl-tests' PERFORMANCE.md defines it for n ranks, where algbw = size
// / time and size is the full vector (all-reduce, reduce, broadcast), the total output (all-gather,
// gather), the total input (reduce-scatter, all-to-all, scatter; what a member sends where parts
// differ and for a shift). Undefined, and so Error, for n < 2.
double busbw_factor(CollectiveKind kind, int ranks);

}  // namespace mb
