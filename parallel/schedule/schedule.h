// Pipeline schedules: for every rank of the pipeline, the order of its slots, and nothing else.
//
// The model is cut into ranks * chunks runs of layers, the virtual stages; a rank holds `chunks` of
// them, and a Placement says which.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/plan/plan.h"

namespace mb {

struct PipelineShape {
  int ranks = 1, chunks = 1, micro_batches = 1;
  int group = 0;  // micro-batches of a round of the interleaved schedules; 0: as many as ranks

  int group_or_ranks() const { return group > 0 ? group : ranks; }
};

struct Schedule {
  std::string_view name;   // as the case spells it
  std::string_view help;   // one line for people
  std::string_view takes;  // the shapes that pass `check`, in few words
  Placement placement;
  bool splits_backward;  // has slots of input_grad and weight_grad
  // Throws Error with the rule that `shape` breaks and the nearest legal values.
  void (*check)(const PipelineShape& shape);
  // The slots of `rank`, for a shape that passes `check`.
  std::vector<Slot> (*order)(int rank, const PipelineShape& shape);
};

const std::vector<Schedule>& schedules();
// Throws Error naming the nearest known name.
const Schedule& find_schedule(std::string_view name);

// The slots of every rank. Throws as `check` does.
std::vector<std::vector<Slot>> slots_of(const Schedule& schedule, const PipelineShape& shape);

// Chunks of a rank if nothing says how many: the fewest that `placement` is made for.
int usual_chunks(Placement placement);

// The virtual stage that is `chunk` of `rank`, and where a virtual stage lives.
int stage_of(Placement placement, int rank, int chunk, int ranks);
struct RankChunk {
  int rank = 0, chunk = 0;
  bool operator==(const RankChunk&) const = default;
};
RankChunk place_of(Placement placement, int stage, int ranks);

}  // namespace mb
