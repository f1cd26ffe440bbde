// Collectives by algorithm as lists: which parts of a vector a member sends and receives, step by
// step. Plain data, for whoever carries them out or counts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/comm/collective.h"

namespace mb {

// Parts [begin, end) of a vector.
struct Run {
  int begin = 0, end = 0;
  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;  // none empty, none next to the one before

struct Step {
  int to = -1, from = -1;  // members; -1: nobody
  Runs sent, received;
  bool reduces = false;  // what comes in is combined with what is there, else replaces it
};

// Of a vector of `parts` equal parts. all_gather, reduce_scatter, gather, scatter: part k is that
// of member k.
struct StepList {
  int parts = 1;
  std::vector<Step> steps;
};

// Elements of a message that travel at a time are at most so many bytes.
inline constexpr std::int64_t kChunkBytes = 256 << 10;
// Parts in which a ring of `members` passes a broadcast or reduce of `bytes` on; at least 1. By
// latency a and bandwidth b (Hockney, Parallel Computing 20(3), 1994), c parts over h hops take
// (c + h - 1) (a + bytes / c / b), least at c = sqrt((h - 1) bytes / (a b)). All links count as of
// a b = kPipeBytes, so that members agree and the time stays linear in a and 1 / b; where a b is r
// times that, the part above bytes / b + (h - 1) a is (sqrt(r) + 1 / sqrt(r)) / 2 times its least.
inline constexpr std::int64_t kPipeBytes = 512 << 10;
int chunks_of(std::int64_t bytes, int members);

// True if steps_of has `kind` by it.
bool has_steps(CollectiveKind kind, Algorithm algorithm);
// What `member` of nodes.size() does; nodes[k] is the node of member k. `chunks` are the parts of
// a broadcast or reduce by ring. Members go through their lists at the same time, each step at
// once in both directions; no list waits for another for ever.
//
// ring: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009; a broadcast is a chain that
// passes chunks on. halving_doubling: recursive halving, then doubling (Rabenseifner's algorithm);
// members above a power of two hand their vector to a neighbour. tree: binomial. Both: Thakur,
// Rabenseifner and Gropp, IJHPCA 19(1), 2005. two_level: as many members of each node as the
// smallest node has share the vector, go round between nodes with their share, and exchange it
// within.
StepList steps_of(CollectiveKind kind, Algorithm algorithm, int member, std::span<const int> nodes,
                  int root, int chunks);

}  // namespace mb
