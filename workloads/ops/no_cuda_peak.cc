#include "workloads/base/error.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "this build has no CUDA; configure with --preset cuda, or -DMB_CUDA=ON, where nvcc is found");
}

}  // namespace

double measure_gemm(DType, bool, const GemmShape&, const GpuEffort&) { refuse(); }
GpuCopyRates measure_copies(std::int64_t, const GpuEffort&) { refuse(); }
std::string gpu_name() { refuse(); }

}  // namespace mb
