// Functions that kernels call: compiled into each of them, on a CPU and on a GPU.
#pragma once

#if defined(__CUDACC__)
#define MB_HD __host__ __device__ __forceinline__
#else
#define MB_HD inline __attribute__((always_inline))
#endif
