// What these tests run on: a test program links CPUs, emulated GPUs, or those that there are.
#pragma once

#include <string>
#include <vector>

#include "parallel/exec/executor.h"

namespace mb::test {

DeviceMaker devices();
// What messages call a rank of one process: "rank 3", "rank 3 on cuda device 3".
std::string rank_text(int rank);
// What an emulated device would not have survived, so far; one line each.
std::vector<std::string> device_faults();

}  // namespace mb::test
