// Gives `meshbench_emulated` a CUPTI. EMULATED_CUPTI is what enabling it returns, a CUptiResult;
// EMULATED_CUPTI_FAULTS n: of every n-th record of work the times are zero.
#include <cstdlib>
#include <string>

#include "tests/support/cuda_emulation/cupti.h"

namespace {

[[maybe_unused]] const bool watched = [] {
  mb::cuda_emulation::CuptiSettings settings;
  if (const char* status = std::getenv("EMULATED_CUPTI"))
    settings.enable_status = std::stoi(status);
  if (const char* every = std::getenv("EMULATED_CUPTI_FAULTS"))
    settings.zero_every = std::stoi(every);
  mb::cuda_emulation::reset_cupti(settings);
  return true;
}();

}  // namespace
