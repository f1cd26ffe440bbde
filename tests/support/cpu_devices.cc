#include "tests/support/devices.h"

namespace mb::test {

DeviceMaker devices() { return {}; }
std::string rank_text(int rank) { return cat("rank ", rank); }
std::vector<std::string> device_faults() { return {}; }

}  // namespace mb::test
