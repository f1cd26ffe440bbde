// Emulated GPUs that communicate by the double of NCCL.
#include "parallel/comm/nccl_world.h"

#include "tests/support/devices.h"

namespace mb::test {

std::unique_ptr<World> world_over(World& hosts) {
  return make_nccl_world(hosts, {.timeout_s = 30});
}

// AdamW divides small gradients by themselves.
double order_factor() { return 4; }

}  // namespace mb::test
