// The kernels of GPUs, compiled for the host: their rows run on streams of this emulation.
#include "workloads/ops/cuda_ops.cu"
