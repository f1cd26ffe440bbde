// Operations of tests on every CPU backend.
#include <algorithm>

#include "tests/support/reference.h"
#include "workloads/base/error.h"

namespace mb::testing {

std::string Backend::text() const {
  return cat(kernels->isa, " ", name_of(dtype), onednn ? " oneDNN" : "");
}

std::vector<Backend> backends() {
  std::vector<Backend> result;
  auto kernels = supported_kernels();
  std::reverse(kernels.begin(), kernels.end());
  for (const CpuKernels* k : kernels) {
    result.push_back({k, false, DType::fp64});
    result.push_back({k, false, DType::fp32});
  }
  if (onednn_available()) result.push_back({kernels.back(), true, DType::fp32});
  return result;
}

void run_operation(const Backend& backend, const Op& op, const OpContext& context,
                   std::vector<Bytes>& reads, std::vector<Bytes>& writes) {
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Bytes& bytes : reads) in.push_back(bytes.data());
  for (Bytes& bytes : writes) out.push_back(bytes.data());
  run_cpu_op_with(*backend.kernels, backend.onednn, op, context, in, out);
}

}  // namespace mb::testing
