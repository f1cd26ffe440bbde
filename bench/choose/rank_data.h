// What data ranks, ZeRO and the optimizer cost one pipeline rank, in closed form: sums over the
// flat buckets of its parameters.
#pragma once

#include <cstdint>

#include "bench/analysis/step_shape.h"
#include "bench/choose/mesh_links.h"
#include "parallel/cost/stack.h"

namespace mb {

struct RankData {
  // Seconds of the sums of gradients: of a step, or with ZeRO-2 and 3 of a micro-batch; and of it
  // those that start once the last block's backward is over.
  double reduce_s = 0, last_reduce_s = 0;
  // Of slices over replicas, each after the last sum of its bucket; of them, those of
  // last_reduce_s.
  double replicas_s = 0, last_replicas_s = 0;
  double end_sums_s = 0;  // of tied tables, after all
  // Gathers of parameters: of ZeRO-1 and 2 at the start of a step, of ZeRO-3 in every pass.
  double gather_s = 0, first_gather_s = 0;
  // Of gather_s and reduce_s, a layer's, and all that is not of layers alone.
  double layer_gather_s = 0, layer_reduce_s = 0, ends_gather_s = 0, ends_reduce_s = 0;
  double add_s = 0;  // ZeRO-2 and 3: adding a micro-batch's sums to those before
  double norm_s = 0, update_s = 0;
  int buckets = 0;
  std::int64_t state_bytes = 0;   // parameters, gradients and optimizer state on the device
  std::int64_t staged_bytes = 0;  // of offloaded state, on the device while it is updated
  std::int64_t moving_bytes = 0;  // ZeRO: gathered parameters and gradients on their way, at most
};

// Of every rank that is `rank` in the pipeline.
RankData rank_data(const StepShape& shape, int rank, const MeshLinks& links, const Machine& machine,
                   const Stack& stack);

}  // namespace mb
