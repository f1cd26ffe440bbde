// A schedule that a user wrote, in the form that schedule_text prints.
//
//   placement v
//   stage 0   F0 F0.1 I0.1 W0.1 ...
//
// One line for each stage (a pipeline rank), in order. The placement, linear, looped or v, may be
// left out: it is linear for one chunk, else looped.
//
// A slot is a pass (F, B, I or W), a micro-batch and, for chunks above 0, a dot and the chunk. '#'
// begins a comment.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace mb {

struct UserSchedule {
  Placement placement = Placement::linear;
  int chunks = 1, micro_batches = 1;
  std::vector<std::vector<Slot>> slots;  // by rank
};

// Throws Error, "<origin>:<line>: ..." first, for what is not of this form and for slots that do
// not pass check_slots.
UserSchedule parse_schedule(std::string_view text, std::string_view origin);

}  // namespace mb
