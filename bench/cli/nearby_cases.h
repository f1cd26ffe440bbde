// Cases beside a case of mode=sim: what its inputs change, and what of it would fit.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/case.h"

namespace mb {

// Fields of machine and stack that the case sets otherwise than the named ones have them, and that
// change neither its step's time nor its memory: "machine.nic_gb_per_s=5".
std::vector<std::string> inputs_without_effect(const Case& c);

// Of a case that does not fit: the first that does among those with more recomputation, optimizer
// state and more divided over data ranks, smaller micro-batches, and all of these, as the words
// that differ; "" if none does.
std::string nearest_that_fits(const Case& c);

}  // namespace mb
