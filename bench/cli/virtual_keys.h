// Keys of mode=sim that make ranks unlike and let times spread.
#pragma once

#include "bench/cli/case.h"

namespace mb {

CaseKey straggler_key();
CaseKey slow_nic_key();
CaseKey jitter_key();

// Throws Error where they have no effect.
void check_virtual(const Case& c);

}  // namespace mb
