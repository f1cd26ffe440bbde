// Copies and reductions from the members' buffers to others, in the widest vectors of this
// processor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/comm/collective.h"
#include "workloads/base/dtype.h"
#include "workloads/ops/stores.h"

namespace mb {

inline constexpr int kReduceOps = 5;

struct Target {
  void* to;
  Stores stores;
};

// One for each instruction set; cpu_isa.h tells them apart. What a call has written is there for
// whoever synchronises with its thread.
struct TransferKernels {
  std::string_view isa;
  // Elements of `sources` in their order, `count` of them, to each of `targets`. A target may be
  // one of the sources. As reduce.h computes them.
  using Reduce = void (*)(const std::vector<const void*>& sources, std::span<const Target> targets,
                          std::int64_t count);
  Reduce reduce[kDTypes][kReduceOps];
  // `bytes` of `from` to each of `targets`, which do not overlap it.
  void (*copy)(const void* from, std::span<const Target> targets, std::int64_t bytes);
};

extern const TransferKernels avx512_transfers, avx2_transfers, base_transfers;

// Those of find_kernels(isa) and of the choice of this process.
const TransferKernels& find_transfers(std::string_view isa);
const TransferKernels& transfers();

}  // namespace mb
