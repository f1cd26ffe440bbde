// Memory as tables, for the verbs that tell of it.
#pragma once

#include <string>

#include "bench/analysis/memory.h"
#include "bench/analysis/step_shape.h"

namespace mb {

// A table of classes: closed form, plan, measured where something was, and what is live at the peak
// of the total; below it, where closed form and plan differ and why.
std::string memory_text(const MemoryReport& memory);

// The closed forms alone, a line for each pipeline rank.
std::string memory_form_text(const StepShape& shape);

}  // namespace mb
