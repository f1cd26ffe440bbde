#include "workloads/ops/cuda_matmul.h"

#include <utility>

#include "workloads/base/cuda_check.h"
#include "workloads/base/mutation.h"

namespace mb::cuda {
namespace {

// What cuBLAS recommends for Hopper; others use a part of it.
constexpr std::size_t kWorkspaceBytes = 32 << 20;

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::fp64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    default:
      throw Error(cat("cuBLASLt multiplies floating-point numbers, not ", name_of(type)));
  }
}

cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld,
                              int batch, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), rows, columns, ld),
        "cublasLtMatrixLayoutCreate");
  if (batch == 1) return made;
  check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                         sizeof batch),
        "cublasLtMatrixLayoutSetAttribute");
  check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride),
        "cublasLtMatrixLayoutSetAttribute");
  return made;
}

// The largest power of two, up to what kernels gain from, that divides an address. Parameters stand
// end to end in their buckets, aligned to no more than an element.
std::uint32_t alignment_of(const void* data) {
  std::uint32_t bytes = 256;
  while (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) bytes /= 2;
  return bytes;
}

}  // namespace

// A row-major matrix is the transposed column-major one, so that c' = b' a', with n rows.
struct MatmulLibrary::Ready {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Ready(const Product& p, bool tf32) {
    const bool fp64 = p.in == DType::fp64;
    const cublasComputeType_t compute = fp64                          ? CUBLAS_COMPUTE_64F
                                        : p.in == DType::fp32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                      : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(&operation, compute, fp64 ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t of_first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, of_first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of_second);
    if (p.bias) {
      require(!fp64, "cuBLASLt adds no bias in fp64");
      require(p.in == p.out, "cuBLASLt's bias is of the result's type");
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    }
    first = p.transpose_b ? layout(p.in, p.k, p.n, p.ldb, p.batch, p.stride_b)
                          : layout(p.in, p.n, p.k, p.ldb, p.batch, p.stride_b);
    second = p.transpose_a ? layout(p.in, p.m, p.k, p.lda, p.batch, p.stride_a)
                           : layout(p.in, p.k, p.m, p.lda, p.batch, p.stride_a);
    result = layout(p.out, p.n, p.m, p.ldc, p.batch, p.stride_c);
  }
  Ready(Ready&& other) noexcept
      : operation(std::exchange(other.operation, nullptr)),
        first(std::exchange(other.first, nullptr)),
        second(std::exchange(other.second, nullptr)),
        result(std::exchange(other.result, nullptr)),
        algorithm(other.algorithm) {}
  ~Ready() {
    if (result) cublasLtMatrixLayoutDestroy(result);
    if (second) cublasLtMatrixLayoutDestroy(second);
    if (first) cublasLtMatrixLayoutDestroy(first);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  void choose(cublasLtHandle_t handle, const Product& p, const Alignment& alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    cublasLtMatmulHeuristicResult_t found{};
    int number = 0;
    cublasStatus_t status =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes);
    const std::pair<cublasLtMatmulPreferenceAttributes_t, std::uint32_t> least[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment[2]}};
    for (const auto& [attribute, bytes] : least) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulAlgoGetHeuristic(handle, operation, first, second, result, result,
                                              preference, 1, &found, &number);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    require(status == CUBLAS_STATUS_SUCCESS && number > 0, "cuBLASLt has no algorithm for ", p.m,
            "x", p.n, "x", p.k, " of ", name_of(p.in), " to ", name_of(p.out), " (status ",
            static_cast<int>(status), ")");
    algorithm = found.algo;
  }
};

MatmulLibrary::MatmulLibrary(bool tf32)
    : tf32_(tf32), workspace_(kWorkspaceBytes, "a workspace of cuBLASLt") {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}
MatmulLibrary::~MatmulLibrary() {
  ready_.clear();
  cublasLtDestroy(handle_);
}

MatmulLibrary::Ready& MatmulLibrary::find(const Product& product, const Alignment& alignment) {
  const auto at = ready_.find({product, alignment});
  if (at != ready_.end()) return at->second;
  Ready made(product, tf32_);
  made.choose(handle_, product, alignment);
  return ready_.emplace(std::pair(product, alignment), std::move(made)).first->second;
}

void MatmulLibrary::run(cudaStream_t stream, const Product& p, const void* a, const void* b,
                        const void* bias, void* c) {
  Ready& ready = find(p, {alignment_of(a), alignment_of(b), alignment_of(c)});
  if (p.bias) ready.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const double one64 = 1, beta64 = p.accumulate ? 1 : 0;
  const float one32 = 1, beta32 = p.accumulate ? 1 : 0;
  const bool fp64 = p.in == DType::fp64;
  if (mutated("device_operands_swapped") && p.m == p.n) std::swap(a, b);
  check(cublasLtMatmul(handle_, ready.operation, fp64 ? static_cast<const void*>(&one64) : &one32,
                       b, ready.first, a, ready.second,
                       fp64 ? static_cast<const void*>(&beta64) : &beta32, c, ready.result, c,
                       ready.result, &ready.algorithm, workspace_.at(), kWorkspaceBytes, stream),
        "cublasLtMatmul");
}

}  // namespace mb::cuda
