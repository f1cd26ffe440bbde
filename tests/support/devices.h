// What these tests run on: a test program links CPUs, emulated GPUs, or those that there are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/exec/executor.h"

namespace mb::test {

// `graph`: steps of GPUs run as CUDA graphs.
DeviceMaker devices(bool graph = false);
// How they communicate if not by what `hosts` has, to which it keeps a reference; else null.
std::unique_ptr<World> world_over(World& hosts);
// How much further apart than by the order of threads' additions results may be.
double order_factor();
// What messages call a rank of one process: "rank 3", "rank 3 on cuda device 3".
std::string rank_text(int rank);
// What an emulated device would not have survived, so far; one line each.
std::vector<std::string> device_faults();

}  // namespace mb::test
