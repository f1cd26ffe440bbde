#include "bench/profile/cupti.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "this build has no CUPTI; install the CUDA toolkit with CUPTI (cuda-cupti-dev), then "
      "configure "
      "with -DMB_CUDA=ON and build again; without it, device events time whole instructions");
}

}  // namespace

void check_cupti() { refuse(); }
void start_cupti() { refuse(); }
ActivityRecords stop_cupti() { refuse(); }

}  // namespace mb
