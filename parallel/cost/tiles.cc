#include "parallel/cost/tiles.h"

#include <array>
#include <cmath>
#include <limits>

namespace mb {
namespace {

// Tiles of cuBLAS, and what smaller ones reach of the rate of the largest, as they read more for
// each FLOP (NVIDIA, Matrix Multiplication Background User's Guide, "Tile quantization" and "Wave
// quantization"; the guide gives the order, the shares were chosen on an A100's matmuls).
struct Tile {
  double m, n, rate;
};
constexpr std::array<Tile, 6> kTiles = {{{256, 128, 1},
                                         {128, 256, 1},
                                         {128, 128, 0.85},
                                         {128, 64, 0.7},
                                         {64, 128, 0.7},
                                         {64, 64, 0.7}}};
// That divide k between them.
constexpr int kMostSplits = 4;

}  // namespace

TiledWork tiled_work(const Product& product, const Machine& machine, double flops_per_s,
                     double bytes_per_s) {
  const double fill = machine.tile_fill_k, sms = machine.wave_sms;
  if (sms == 0) return {2 * product.batch * product.m * product.n * (product.k + fill), 0};
  TiledWork best;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles =
        product.batch * std::ceil(product.m / tile.m) * std::ceil(product.n / tile.n);
    for (int splits = 1; splits <= kMostSplits; ++splits) {
      const double waves = std::ceil(tiles * splits / sms);
      const TiledWork work{
          2 * waves * sms * tile.m * tile.n * (product.k / splits + fill) / tile.rate,
          splits > 1 ? 4.0 * splits * product.batch * product.m * product.n : 0};
      const double seconds = work.flops / flops_per_s + work.bytes / bytes_per_s;
      if (seconds < least) least = seconds, best = work;
    }
  }
  return best;
}

}  // namespace mb
