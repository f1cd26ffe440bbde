// The shapes that tests of schedules go through.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "tests/support/error.h"

namespace mb {

// Every shape of up to `most_ranks` ranks that `schedule` takes: 1 to 4 chunks, up to three
// micro-batches a rank and some more, rounds of as many micro-batches as ranks, and longer ones.
inline std::vector<PipelineShape> legal_shapes(const Schedule& schedule, int most_ranks) {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= most_ranks; ++p) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int m = 1; m <= 3 * p + 3; ++m) {
        for (const int group : {0, p + 1, p + 3}) {
          if (group > 0 && (schedule.placement != Placement::looped || chunks == 1)) continue;
          const PipelineShape shape{p, chunks, m, group};
          if (message_of([&] { schedule.check(shape); }) == "no Error") shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

// "zb-v p=4 v=2 m=8 group=0"
inline std::string shape_text(std::string_view schedule, const PipelineShape& shape) {
  return cat(schedule, " p=", shape.ranks, " v=", shape.chunks, " m=", shape.micro_batches,
             " group=", shape.group);
}

}  // namespace mb
