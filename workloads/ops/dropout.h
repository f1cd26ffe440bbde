// What dropout keeps: see `struct Dropout` in op.h.
#pragma once

#include <cstdint>

#include "workloads/base/host_device.h"
#include "workloads/base/mutation.h"
#include "workloads/base/rng.h"
#include "workloads/ops/launch.h"

namespace mb {

struct DropoutMask {
  std::uint64_t key = 0;
  std::int64_t threshold = 0;  // of 53 random bits, below which an element is dropped
  double scale = 1;            // of the kept ones
};

static MB_HD DropoutMask dropout_mask(const Dropout& dropout, const OpContext& context) {
  std::uint64_t seed = mix64(context.seed + 0x9e3779b97f4a7c15ull * (context.step + 1));
  if (mutated("dropout_by_rank")) seed += context.shard_index;
  return {random_key(seed, dropout.stream),
          static_cast<std::int64_t>(__builtin_ceil(dropout.probability * 0x1.0p53)),
          1 / (1 - dropout.probability)};
}

// As random_uniform(seed, stream, index) >= probability, in integers so that loops vectorise.
static MB_HD bool dropout_keeps(const DropoutMask& mask, std::int64_t index) {
  return static_cast<std::int64_t>(random_bits(mask.key, index) >> 11) >= mask.threshold;
}

// x where it is kept, divided by the probability of that, and 0 where it is dropped.
template <class T>
static MB_HD T dropout_of(const DropoutMask& mask, std::int64_t index, T x) {
  return dropout_keeps(mask, index) ? x * static_cast<T>(mask.scale) : T(0);
}

}  // namespace mb
