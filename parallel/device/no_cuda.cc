#include "parallel/device/cuda_device.h"

namespace mb {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "this build has no CUDA; build with: cmake --preset cuda && cmake --build --preset cuda, "
      "which takes a CUDA toolkit (nvcc, cuBLASLt)");
}

}  // namespace

int cuda_devices() { refuse(); }
std::vector<CudaFacts> cuda_facts() { refuse(); }
std::vector<std::string> cuda_attention() { refuse(); }
std::unique_ptr<Device> make_cuda_device(const CudaOptions&, int, const std::string&) { refuse(); }

}  // namespace mb
