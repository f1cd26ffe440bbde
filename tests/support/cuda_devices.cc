// Ranks of tests on GPUs, as many as there are, round robin.
#include "parallel/device/cuda_device.h"
#include "tests/support/devices.h"

namespace mb::test {

DeviceMaker devices(bool graph) {
  return [graph](int rank) {
    return make_cuda_device({.device = rank % cuda_devices(), .graph = graph}, kStreams,
                            cat("g", rank));
  };
}
std::string rank_text(int rank) {
  return cat("rank ", rank, " on cuda device ", rank % cuda_devices());
}

}  // namespace mb::test
