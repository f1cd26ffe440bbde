// Chooses the instruction set and the matmul backend.
#include "workloads/ops/cpu_isa.h"

#include <cstdlib>
#include <string>

#include "workloads/base/error.h"

namespace mb {
namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

const CpuKernels& choose_kernels() {
  const std::string wanted = environment("MB_ISA");
  return wanted.empty() ? *supported_kernels().front() : find_kernels(wanted);
}

bool choose_onednn() {
  const std::string wanted = environment("MB_MATMUL");
  require(wanted.empty() || wanted == "builtin" || wanted == "onednn", "MB_MATMUL=", wanted,
          " is no matmul backend; use onednn or builtin");
  require(wanted != "onednn" || onednn_available(),
          "MB_MATMUL=onednn: this build has no oneDNN; set MB_ONEDNN=ON and install libdnnl-dev");
  return wanted.empty() ? onednn_available() : wanted == "onednn";
}

}  // namespace

std::vector<const CpuKernels*> supported_kernels() {
  std::vector<const CpuKernels*> result;
  if (has_avx512()) result.push_back(&avx512_kernels);
  if (has_avx2()) result.push_back(&avx2_kernels);
  result.push_back(&base_kernels);
  return result;
}

const CpuKernels& find_kernels(std::string_view isa) {
  std::string known;
  for (const CpuKernels* kernels : supported_kernels()) {
    if (kernels->isa == isa) return *kernels;
    known += cat(known.empty() ? "" : ", ", kernels->isa);
  }
  throw Error(cat("MB_ISA=", isa, " cannot run here; this processor has ", known));
}

const CpuKernels& cpu_kernels() {
  static const CpuKernels& chosen = choose_kernels();
  return chosen;
}

bool use_onednn() {
  static const bool chosen = choose_onednn();
  return chosen;
}

}  // namespace mb
