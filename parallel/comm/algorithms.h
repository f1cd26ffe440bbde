// Collectives by a chosen algorithm over send_recv, on any Comm.
#pragma once

#include <memory>
#include <span>

#include "parallel/comm/comm.h"

namespace mb {

// True if with_algorithm has `kind` by it; the others fall to the Comm's own way.
bool has_algorithm(CollectiveKind kind, Algorithm algorithm);

// `comm` with the collectives that `algorithm` has going that way (steps.h). `nodes[k]` is the node
// of member k, for two_level; else it may be empty. What it carries are collectives, not their
// messages. `direct` reduces in the order of the members and rounds once; the others add in an
// order of their own, the same on all members, and 16-bit types are rounded at every step. Throws
// Error for Algorithm::native and for nodes that do not fit.
std::unique_ptr<Comm> with_algorithm(std::unique_ptr<Comm> comm, Algorithm algorithm,
                                     std::span<const int> nodes);

}  // namespace mb
