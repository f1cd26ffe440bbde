// Errors of CUDA's libraries as Error. For sources that see the toolkit's headers.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "workloads/base/error.h"

namespace mb {

// `what` is the function's name. What to try is told where there is something.
inline void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  const char* hint = "";
  if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice)
    hint = "; 'nvidia-smi' tells which driver and devices there are";
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction)
    hint =
        "; this build has no kernels for such a GPU: configure with "
        "-DCMAKE_CUDA_ARCHITECTURES=native";
  if (code == cudaErrorIllegalAddress || code == cudaErrorLaunchFailure)
    hint =
        "; the fault is of an earlier kernel: run again with CUDA_LAUNCH_BLOCKING=1 to see which";
  throw Error(cat(what, ": ", cudaGetErrorName(code), ", ", cudaGetErrorString(code), hint));
}
inline void check(cublasStatus_t code, const char* what) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw Error(cat(what, ": cuBLASLt status ", static_cast<int>(code)));
}

}  // namespace mb
