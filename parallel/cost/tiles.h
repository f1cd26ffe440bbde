// How a GPU's matmul divides its result: into tiles, one to an SM, in whole waves.
#pragma once

#include "parallel/cost/kernel.h"
#include "parallel/cost/machine.h"

namespace mb {

// What a product takes beside its own FLOPs on `machine`.
struct TiledWork {
  // Of all SMs for as long as the last wave takes, whether they had a tile or not.
  double flops = 0;
  double bytes = 0;  // partial sums in fp32, where several tiles divide k; after all else
};
// By the tile and the division of k that takes `machine` least, at so many FLOP/s and bytes/s.
TiledWork tiled_work(const Product& product, const Machine& machine, double flops_per_s,
                     double bytes_per_s);

}  // namespace mb
