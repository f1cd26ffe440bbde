// The test double behaves as CUDA is documented to, as far as tests lean on it.
#include "tests/support/cuda_emulation/emulation.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>

namespace mb::cuda_emulation {
namespace {

class CudaEmulation : public testing::Test {
 protected:
  void SetUp() override { reset({.devices = 2, .memory_bytes = 1 << 20}); }

  static cudaStream_t stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  template <class T>
  static T* device(std::size_t n) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, n * sizeof(T)), cudaSuccess);
    return static_cast<T*>(data);
  }
  template <class T>
  static T* pinned(std::size_t n) {
    void* data = nullptr;
    EXPECT_EQ(cudaHostAlloc(&data, n * sizeof(T), 0), cudaSuccess);
    return static_cast<T*>(data);
  }
};

TEST_F(CudaEmulation, MemoryStartsAsNanAndIsCounted) {
  float* const x = device<float>(4);
  EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[3]));
  EXPECT_EQ(memory(0).live_bytes, 16u);
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_EQ(total - free, 16u);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  void* large = nullptr;
  EXPECT_EQ(cudaMalloc(&large, 2 << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(large, nullptr);
  EXPECT_EQ(memory(0).live_bytes, 0u);
}

TEST_F(CudaEmulation, StreamsRunInOrderAndBesideEachOther) {
  std::atomic<bool> go{false};
  std::vector<int> order;
  cudaStream_t a = stream(), b = stream();
  const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
  cudaLaunchHostFunc(a, wait, &go);
  cudaLaunchHostFunc(
      a, [](void* to) { static_cast<std::vector<int>*>(to)->push_back(2); }, &order);
  cudaLaunchHostFunc(
      b, [](void* to) { static_cast<std::vector<int>*>(to)->push_back(1); }, &order);
  cudaStreamSynchronize(b);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  go = true;
  go.notify_all();
  cudaStreamSynchronize(a);
  EXPECT_EQ(order, (std::vector{1, 2}));
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

TEST_F(CudaEmulation, WaitsMeetTheRecordingOfTheirTime) {
  std::atomic<bool> go{false};
  std::atomic<int> seen{0};
  cudaStream_t a = stream(), b = stream();
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDefault);
  cudaStreamWaitEvent(b, event, 0);  // never recorded: nothing to wait for
  cudaLaunchHostFunc(
      a, [](void* f) { static_cast<std::atomic<bool>*>(f)->wait(false); }, &go);
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event, 0);
  cudaLaunchHostFunc(
      b, [](void* to) { *static_cast<std::atomic<int>*>(to) = 1; }, &seen);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(seen, 0);
  go = true;
  go.notify_all();
  cudaStreamSynchronize(b);
  EXPECT_EQ(seen, 1);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event, event), cudaSuccess);
  EXPECT_EQ(ms, 0);
  cudaEventDestroy(event);
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

TEST_F(CudaEmulation, CopiesOfPinnedMemoryAreAsynchronousAndChecked) {
  float* const x = device<float>(2);
  float* const host = pinned<float>(2);
  host[0] = 3, host[1] = 4;
  cudaStream_t s = stream();
  EXPECT_EQ(cudaMemcpyAsync(x, host, 8, cudaMemcpyHostToDevice, s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(x[1], 4);
  EXPECT_TRUE(faults().empty());
  EXPECT_EQ(cudaMemcpyAsync(x, host, 12, cudaMemcpyHostToDevice, s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorIllegalAddress) << "sticky";
  cudaStreamDestroy(s);
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_NE(faults()[0].find("of an allocation of 8"), std::string::npos) << faults()[0];
}

TEST_F(CudaEmulation, HostPointersAndOtherDevicesMemoryAreNoDeviceMemory) {
  float local[2] = {};
  cudaStream_t s = stream();
  cudaMemsetAsync(local, 0, 8, s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  reset({.devices = 2});
  float* const x = device<float>(2);
  cudaSetDevice(1);
  cudaStream_t other = stream();
  cudaMemsetAsync(x, 0, 8, other);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorIllegalAddress);
  EXPECT_NE(faults().at(0).find("memory of device 0"), std::string::npos) << faults()[0];
  cudaStreamDestroy(s);
  cudaStreamDestroy(other);
}

TEST_F(CudaEmulation, WritesPastTheEndAndAfterFreeAreFound) {
  float* const x = device<float>(2);
  EXPECT_TRUE(faults().empty());
  x[2] = 0;
  EXPECT_EQ(faults().size(), 1u);
  reset();
  float* const y = device<float>(2);
  cudaFree(y);
  EXPECT_TRUE(faults().empty());
  y[1] = 0;
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_NE(faults()[0].find("after they were freed"), std::string::npos);
}

TEST_F(CudaEmulation, FailsWhereItIsTold) {
  fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  EXPECT_NE(device<float>(1), nullptr);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&data, 4), cudaSuccess);
  fail("cudaMalloc", 1, cudaErrorLaunchFailure, /*sticky=*/true);
  EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaFree(nullptr), cudaErrorLaunchFailure);
  EXPECT_EQ(calls("cudaMalloc"), 4);
}

TEST_F(CudaEmulation, NoDriverAndNoDeviceSaySo) {
  int count = -1;
  reset({.driver_version = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  reset({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
}

// d[2, 3] = a[2, 2]^T b[2, 3] + bias, column-major, with leading dimensions.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t best{};

  explicit Product(std::int64_t ldb = 4) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 2, 2, 2);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 2, 3, ldb);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 2, 3, 2);
    cublasLtMatmulPreferenceCreate(&preference);
  }
  ~Product() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(what);
    cublasLtDestroy(handle);
  }
  cublasStatus_t choose() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, what, a, b, d, d, preference, 1, &best, &found);
  }
  cublasStatus_t run(const float* x, const float* y, float* z, float beta, cudaStream_t stream) {
    const float one = 1;
    return cublasLtMatmul(handle, what, &one, x, a, y, b, &beta, z, d, z, d, &best.algo, nullptr, 0,
                          stream);
  }
};

TEST_F(CudaEmulation, MatmulIsColumnMajorWithLeadingDimensions) {
  float *a = device<float>(4), *b = device<float>(10), *d = device<float>(6);
  for (int i = 0; i < 4; ++i) a[i] = static_cast<float>(i + 1);  // columns (1 2) (3 4)
  for (int i = 0; i < 10; ++i) b[i] = static_cast<float>(i);     // columns (0 1) (4 5) (8 9)
  cudaStream_t s = stream();
  {
    Product product;
    ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.run(a, b, d, 0, s), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.run(a, b, d, 1, s), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    const std::array<float, 6> once = {2, 4, 14, 32, 26, 60};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(d[i], 2 * once[i]);
    // The algorithm was chosen for operands aligned to 256 bytes.
    EXPECT_EQ(product.run(a, b, d + 1, 0, s), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(Product(1).choose(), CUBLAS_STATUS_INVALID_VALUE) << "ld is less than rows";
    Product wide(5);
    ASSERT_EQ(wide.choose(), CUBLAS_STATUS_SUCCESS);
    wide.run(a, b, d, 0, s);
    EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress) << "b ends too early";
  }
  cudaStreamDestroy(s);
}

}  // namespace
}  // namespace mb::cuda_emulation
