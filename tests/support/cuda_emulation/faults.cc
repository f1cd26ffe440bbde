#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"

namespace mb::test {

std::vector<std::string> device_faults() { return cuda_emulation::faults(); }

}  // namespace mb::test
