// Closed form of a pipeline rank's parameters and of the flat buckets that they fill: from the
// model's sizes and the mesh alone.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/analysis/step_shape.h"

namespace mb {

enum class BlockKind : std::uint8_t { embedding, layer, head };
struct RankBlock {
  BlockKind kind = BlockKind::layer;
  int layer = -1;  // of BlockKind::layer
  int chunk = 0;
};
// What a pipeline rank computes, chunk by chunk in the order of the forward.
std::vector<RankBlock> blocks_of(const StepShape& shape, int rank);

// Elements of every parameter of a layer on one tensor and expert rank, in the order of the
// forward. Matrices and the biases of column-parallel ones are divided, norms, the router and the
// biases that are added after the sum are not (Shoeybi et al., Megatron-LM, 2019, section 3);
// experts are divided over expert ranks too; a tensor rank has one key and value head at least.
struct LocalParameter {
  std::int64_t elements = 0;
  bool expert = false;           // summed and owned without the expert ranks
  bool partial = false;          // its gradient is summed over tensor ranks as well
  bool tied = false;             // the other end of the pipeline has a copy
  bool added = false;            // a bias that is added after a sum
  bool norm = false;             // its gradient comes with the input gradients
  std::vector<int> blocks = {};  // that use it, the first of them declares it
};
std::vector<LocalParameter> parameters_of(const StepShape& shape, int rank);

// Parameters that a rank holds without ZeRO and its padding; with the padded vocabulary, a tied
// copy and shared key and value heads.
std::int64_t local_parameters(const StepShape& shape, int rank);

// Parameters end to end, from the last to the first, in buckets of at most options.bucket_bytes,
// with ZeRO-3 of one block each, with ZeRO-2 and 3 in split backwards norms by themselves, padded
// to equal slices for the owners (Rajbhandari et al., ZeRO, 2020): dp x cp x ep ranks, of experts
// dp x cp; without ZeRO everyone owns all.
struct FlatBucket {
  std::int64_t elements = 0;  // with padding
  int owners = 1;
  int sharers = 1;     // ranks that sum its gradient
  bool early = false;  // which comes with the input gradients of a split backward
  // Of biases that are added after a sum alone, which only a forward reads.
  bool only_added = true;
  std::vector<int> blocks;  // of blocks_of, ascending
  std::int64_t slice() const { return elements / owners; }
};
std::vector<FlatBucket> flat_buckets(const StepShape& shape, int rank);

}  // namespace mb
