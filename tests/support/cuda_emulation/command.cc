// Makes `meshbench` and `gpu_bench` test programs on emulated devices, which say so whenever they
// run. For tests, EMULATED_DEVICES and EMULATED_BYTES are how many there are and what each holds;
// -1 devices: not even a driver. EMULATED_NCCL is the version of NCCL's library, and
// EMULATED_FAULT="ncclAllReduce 3 2" lets the third call of a function return 2, with a fourth word
// later ones too; a kernel's launch is "kernel_launch".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/cuda_emulation/emulation.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {

const char* why_no_speed() { return "a test double of GPUs, whose times mean nothing"; }

}  // namespace mb

namespace {

[[maybe_unused]] const bool told = [] {
  std::fputs("a TEST DOUBLE of GPUs on this CPU; its times mean nothing\n", stderr);
  mb::cuda_emulation::Settings settings;
  if (const char* devices = std::getenv("EMULATED_DEVICES")) settings.devices = std::stoi(devices);
  if (const char* bytes = std::getenv("EMULATED_BYTES")) settings.memory_bytes = std::stoull(bytes);
  if (const char* version = std::getenv("EMULATED_NCCL"))
    settings.nccl_version = std::stoi(version);
  if (settings.devices < 0) settings.driver_version = 0;
  mb::cuda_emulation::reset(settings);
  if (const char* fault = std::getenv("EMULATED_FAULT")) {
    std::istringstream words(fault);
    std::string function, sticky;
    int call = 0, error = 0;
    words >> function >> call >> error >> sticky;
    std::replace(function.begin(), function.end(), '_', ' ');
    mb::cuda_emulation::fail(function, call, error, !sticky.empty());
  }
  return true;
}();

}  // namespace
