// Ranks of tests on emulated GPUs, as many as there are, round robin. A test double.
#include "tests/support/devices.h"

#include "parallel/device/cuda_device.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace mb::test {

DeviceMaker devices() {
  return [](int rank) {
    return make_cuda_device({.device = rank % cuda_devices()}, kStreams, cat("g", rank));
  };
}
std::string rank_text(int rank) {
  return cat("rank ", rank, " on cuda device ", rank % cuda_devices());
}
std::vector<std::string> device_faults() { return cuda_emulation::faults(); }

}  // namespace mb::test
