// Proves a Plan before it runs.
#pragma once

#include "parallel/plan/plan.h"

namespace mb {

// Throws Error naming the instructions that disagree unless, in every Program: nothing is read
// before it is written; nothing is written and never read; streams wait only for what comes earlier
// in the list; no two tensors share bytes while both live; any two uses of the same bytes on two
// streams, one of them a write, are ordered by waits. And between Programs: sends meet receives of
// the same message, members of a group agree on the order of their collectives, and the whole ends
// with sends that have no buffer to go to.
void validate(const Plan& plan);

}  // namespace mb
