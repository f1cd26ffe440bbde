// cuBLASLt's matmul on the host, column-major. A test double; see emulation.h.
//
// Stricter than the library where that would depend on the algorithm that it happens to choose: a
// chosen algorithm serves only the layouts, the alignment of operands and the workspace that it was
// chosen for.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"
#include "workloads/base/half.h"

using namespace mb::cuda_emulation;

namespace {

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
  std::int32_t batches = 1;
  std::int64_t stride = 0;

  std::size_t element() const { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
  // From the first element to the end of the last.
  std::size_t extent() const {
    const std::int64_t last = (batches - 1) * stride + (columns - 1) * ld + rows;
    return static_cast<std::size_t>(last) * element();
  }
};
struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

// What an algorithm was chosen for, as it lies in cublasLtMatmulAlgo_t.
struct Chosen {
  std::uint64_t key;
  std::uint64_t workspace;
  std::uint32_t alignment[4];
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

Layout& layout(cublasLtMatrixLayout_t handle) { return *reinterpret_cast<Layout*>(handle); }
Description& description(cublasLtMatmulDesc_t handle) {
  return *reinterpret_cast<Description*>(handle);
}
Preference& preference(cublasLtMatmulPreference_t handle) {
  return *reinterpret_cast<Preference*>(handle);
}

cublasStatus_t enter_lt(const char* name) {
  return static_cast<cublasStatus_t>(enter(name, CUBLAS_STATUS_EXECUTION_FAILED));
}

template <class T>
cublasStatus_t set(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t key_of(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& y) {
  std::uint64_t key = 0xcbf29ce484222325ull;
  const auto mix = [&](std::uint64_t value) { key = (key ^ value) * 0x100000001b3ull; };
  for (const int value : {int(d.compute), int(d.transpose_a), int(d.transpose_b), int(d.epilogue)})
    mix(value);
  for (const Layout& l : {a, b, c, y})
    for (const std::int64_t value :
         {std::int64_t(l.type), std::int64_t(l.rows), std::int64_t(l.columns), l.ld,
          std::int64_t(l.batches), l.stride})
      mix(value);
  return key;
}

bool transposed(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }

cublasStatus_t check(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& y) {
  for (const Layout* l : {&a, &b, &c, &y})
    if (l->rows == 0 || l->columns == 0 || l->ld < std::int64_t(l->rows) || l->batches != y.batches)
      return CUBLAS_STATUS_INVALID_VALUE;
  const auto m = transposed(d.transpose_a) ? a.columns : a.rows;
  const auto k = transposed(d.transpose_a) ? a.rows : a.columns;
  const auto k_of_b = transposed(d.transpose_b) ? b.columns : b.rows;
  const auto n = transposed(d.transpose_b) ? b.rows : b.columns;
  if (k != k_of_b || m != y.rows || n != y.columns || c.rows != y.rows || c.columns != y.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool fp64 = d.compute == CUBLAS_COMPUTE_64F;
  const bool fp32 = d.compute == CUBLAS_COMPUTE_32F || d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (d.scale != (fp64 ? CUDA_R_64F : CUDA_R_32F) || a.type != b.type || c.type != y.type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (fp64)
    return a.type == CUDA_R_64F && y.type == CUDA_R_64F ? CUBLAS_STATUS_SUCCESS
                                                        : CUBLAS_STATUS_NOT_SUPPORTED;
  const bool known = a.type == CUDA_R_32F || a.type == CUDA_R_16BF || a.type == CUDA_R_16F;
  if (!fp32 || !known || (y.type != a.type && y.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || d.epilogue == CUBLASLT_EPILOGUE_BIAS
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

double load(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(data)[i];
    case CUDA_R_16BF:
      return float(static_cast<const mb::Bf16*>(data)[i]);
    default:
      return float(static_cast<const mb::Fp16*>(data)[i]);
  }
}
void store(void* data, cudaDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = value;
      break;
    case CUDA_R_32F:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case CUDA_R_16BF:
      static_cast<mb::Bf16*>(data)[i] = static_cast<float>(value);
      break;
    default:
      static_cast<mb::Fp16*>(data)[i] = static_cast<float>(value);
  }
}

// To the 10 bits behind the point that TF32 keeps, to nearest, ties away from 0.
float to_tf32(float x) { return mb::float_of((mb::bits_of(x) + 0x1000u) & 0xffffe000u); }

// op(matrix) of one batch as [rows][columns] of M.
template <class M>
std::vector<M> fetch(const Layout& l, cublasOperation_t operation, const void* data, int batch,
                     bool tf32) {
  const std::int64_t rows = transposed(operation) ? l.columns : l.rows;
  const std::int64_t columns = transposed(operation) ? l.rows : l.columns;
  std::vector<M> values(rows * columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = transposed(operation) ? i * l.ld + j : j * l.ld + i;
      const M value = static_cast<M>(load(data, l.type, batch * l.stride + at));
      values[i * columns + j] = tf32 ? to_tf32(static_cast<float>(value)) : value;
    }
  }
  return values;
}

template <class M>
void multiply(const Description& d, M alpha, const void* a, const Layout& la, const void* b,
              const Layout& lb, M beta, const void* c, const Layout& lc, void* y,
              const Layout& ly) {
  const std::int64_t m = ly.rows, n = ly.columns;
  const std::int64_t k = transposed(d.transpose_a) ? la.rows : la.columns;
  const bool tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && la.type == CUDA_R_32F;
  std::vector<M> row(n);
  for (int batch = 0; batch < ly.batches; ++batch) {
    const std::vector<M> left = fetch<M>(la, d.transpose_a, a, batch, tf32);
    const std::vector<M> right = fetch<M>(lb, d.transpose_b, b, batch, tf32);
    for (std::int64_t i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), M(0));
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t j = 0; j < n; ++j) row[j] += left[i * k + l] * right[l * n + j];
      const M bias = d.epilogue == CUBLASLT_EPILOGUE_BIAS ? M(load(d.bias, ly.type, i)) : M(0);
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = batch * ly.stride + j * ly.ld + i;
        // With beta 0, C is not read: NaN there does not matter.
        const M before =
            beta == M(0) ? M(0) : beta * M(load(c, lc.type, batch * lc.stride + j * lc.ld + i));
        store(y, ly.type, at, alpha * row[j] + before + bias);
      }
    }
  }
}

bool aligned(const void* data, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(current_device()));
  return enter_lt("cublasLtCreate");
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return enter_lt("cublasLtDestroy");
}
std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    default:
      return "an error that the emulation has no words for";
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, ld});
  return enter_lt("cublasLtMatrixLayoutCreate");
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete &layout(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout(handle).batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout(handle).stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return enter_lt("cublasLtMatmulDescCreate");
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete &description(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Description& d = description(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d.bias, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return enter_lt("cublasLtMatmulPreferenceCreate");
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete &preference(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  Preference& p = preference(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(p.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(p.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(p.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(p.alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  if (const auto status = enter_lt("cublasLtMatmulAlgoGetHeuristic")) return status;
  *found = 0;
  const auto status = check(description(operation), layout(a), layout(b), layout(c), layout(d));
  if (status || most < 1) return status;
  Chosen chosen{.key = key_of(description(operation), layout(a), layout(b), layout(c), layout(d)),
                .workspace = std::min<std::uint64_t>(preference(wanted).workspace, 1024)};
  std::copy_n(preference(wanted).alignment, 4, chosen.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &chosen, sizeof chosen);
  results[0].workspaceSize = chosen.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (const auto status = enter_lt("cublasLtMatmul")) return status;
  const Description what = description(operation);
  const Layout la = layout(a_layout), lb = layout(b_layout), lc = layout(c_layout),
               ld = layout(d_layout);
  if (const auto status = check(what, la, lb, lc, ld)) return status;
  const int device = device_of(stream);
  if (*reinterpret_cast<int*>(handle) != device) return CUBLAS_STATUS_INVALID_VALUE;
  Chosen chosen{.key = 0, .workspace = 0};
  if (algo) {
    std::memcpy(&chosen, algo, sizeof chosen);
    if (chosen.key != key_of(what, la, lb, lc, ld) || chosen.workspace > workspace_bytes ||
        !aligned(a, chosen.alignment[0]) || !aligned(b, chosen.alignment[1]) ||
        !aligned(c, chosen.alignment[2]) || !aligned(d, chosen.alignment[3]))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool fp64 = what.scale == CUDA_R_64F;
  const double by = fp64 ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double kept = fp64 ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  submit(stream, {.call = "cublasLtMatmul"}, [=] {
    const bool may = check_access(device, a, la.extent(), "a matmul's A") &&
                     check_access(device, b, lb.extent(), "a matmul's B") &&
                     (kept == 0 || check_access(device, c, lc.extent(), "a matmul's C")) &&
                     check_access(device, d, ld.extent(), "a matmul's D") &&
                     check_access(device, workspace, chosen.workspace, "a matmul's workspace") &&
                     (what.epilogue != CUBLASLT_EPILOGUE_BIAS ||
                      check_access(device, what.bias, ld.rows * ld.element(), "a matmul's bias"));
    if (!may) return;
    if (chosen.workspace) std::memset(workspace, 0xff, chosen.workspace);
    if (fp64) {
      multiply<double>(what, by, a, la, b, lb, kept, c, lc, d, ld);
    } else {
      multiply<float>(what, static_cast<float>(by), a, la, b, lb, static_cast<float>(kept), c, lc,
                      d, ld);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
