#include "tests/support/launched.h"

#include "parallel/comm/launcher.h"

namespace mb::test {
namespace {

std::unique_ptr<MpiWorld> world;

}  // namespace

MpiWorld* launched() { return world.get(); }

void start_ranks() {
  if (!launcher()) return;
  // Small data takes the way of large, in pieces, and clocks are aligned as between hosts.
  world = std::make_unique<MpiWorld>(
      MpiOptions{.piece_bytes = 3001, .native_limit = 700, .trust_kernel_clock = false});
}

void end_ranks() { world.reset(); }

}  // namespace mb::test
