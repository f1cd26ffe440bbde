// How long a collective takes by alpha-beta: latencies and bytes of the steps that follow each
// other.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "parallel/comm/collective.h"
#include "parallel/cost/machine.h"

namespace mb {

// Over `ranks` ranks by a ring of one kind of link: an all-reduce of n bytes over g ranks takes
// 2 (g - 1) (latency + n / g / bandwidth), the others half; a shift latency + n / bandwidth; a
// broadcast or reduce in c = chunks_of(n, g) chunks (steps.h) (g - 2 + c) (latency + n / c /
// bandwidth).
double collective_seconds(CollectiveKind kind, std::int64_t bytes, int ranks, const Link& link);

// By `algorithm` over members on `nodes`: sum over the rounds of its steps (steps.h) of latency +
// bytes / bandwidth of the round's largest message, over `inter` where any of the round's messages
// crosses nodes, or longer where what enters or leaves a node in the round takes `node_gb_per_s`
// longer. The root is member 0. By own and native, and kinds that the algorithm lacks: the formula
// above over the slowest link. Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, have
// these sums for the flat algorithms.
double collective_seconds(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                          std::span<const int> nodes, const Link& intra, const Link& inter,
                          double node_gb_per_s = std::numeric_limits<double>::infinity());

}  // namespace mb
