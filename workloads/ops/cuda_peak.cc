#include "workloads/ops/cuda_peak.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "workloads/base/cuda_memory.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"
#include "workloads/ops/cuda_matmul.h"

namespace mb {
namespace {

using cuda::Memory;

class Stream {
 public:
  Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (cudaEvent_t& event : events_)
      check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  }
  ~Stream() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

  // Milliseconds of `runs` times work(), between two events of the device.
  template <class Work>
  double time_ms(std::int64_t runs, Work work) const {
    check(cudaEventRecord(events_[0], stream_), "cudaEventRecord");
    for (std::int64_t run = 0; run < runs; ++run) work();
    check(cudaEventRecord(events_[1], stream_), "cudaEventRecord");
    check(cudaEventSynchronize(events_[1]), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events_[0], events_[1]), "cudaEventElapsedTime");
    return std::max(1e-6, static_cast<double>(ms));
  }

  // Median seconds of one work().
  template <class Work>
  double seconds(const GpuEffort& effort, Work work) const {
    time_ms(1, work);  // what is chosen and loaded at the first
    double once_ms = time_ms(1, work);
    const auto runs_in = [&](double ms) {
      return std::clamp<std::int64_t>(std::llround(ms / once_ms), 1, 100'000);
    };
    const std::int64_t warm_up = runs_in(effort.warm_up_ms);
    once_ms = time_ms(warm_up, work) / static_cast<double>(warm_up);
    const std::int64_t runs = runs_in(effort.try_ms);
    std::vector<double> tries;
    for (int i = 0; i < effort.tries; ++i) tries.push_back(time_ms(runs, work));
    std::nth_element(tries.begin(), tries.begin() + effort.tries / 2, tries.end());
    return tries[effort.tries / 2] / 1e3 / static_cast<double>(runs);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {};
};

// Random numbers in [-1, 1), a piece that is repeated.
template <class T>
void fill(const Stream& stream, const Memory& to, std::int64_t elements) {
  std::vector<T> piece(std::min<std::int64_t>(elements, 1 << 20));
  for (std::size_t i = 0; i < piece.size(); ++i)
    piece[i] = static_cast<Main<T>>(2 * random_uniform(1, 0, static_cast<std::int64_t>(i)) - 1);
  for (std::int64_t at = 0; at < elements; at += static_cast<std::int64_t>(piece.size())) {
    const auto n = std::min<std::int64_t>(static_cast<std::int64_t>(piece.size()), elements - at);
    check(cudaMemcpyAsync(static_cast<T*>(to.at()) + at, piece.data(), n * sizeof(T),
                          cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
void fill(const Stream& stream, const Memory& to, DType dtype, std::int64_t elements) {
  switch (dtype) {
    case DType::fp32:
      return fill<float>(stream, to, elements);
    case DType::fp64:
      return fill<double>(stream, to, elements);
    case DType::bf16:
      return fill<Bf16>(stream, to, elements);
    case DType::fp16:
      return fill<Fp16>(stream, to, elements);
    default:
      throw Error(cat("GPUs multiply fp64, fp32, bf16 and fp16, not ", name_of(dtype)));
  }
}

class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes) {
    check(cudaHostAlloc(&at_, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
          "cudaHostAlloc");
  }
  ~PinnedMemory() { cudaFreeHost(at_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* at() const { return at_; }

 private:
  void* at_ = nullptr;
};

}  // namespace

double measure_gemm(DType dtype, bool tf32, const GemmShape& shape, const GpuEffort& effort) {
  const auto& [m, n, k] = shape;
  require(m > 0 && n > 0 && k > 0, "a product of ", m, "x", n, "x", k, ": give sizes above 0");
  require(effort.tries > 0, "a rate wants one try or more, not ", effort.tries);
  const Stream stream;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  };
  const Memory a(bytes(m * k), "the first matrix of a product"),
      b(bytes(n * k), "the second matrix of a product"), c(bytes(m * n), "a product");
  fill(stream, a, dtype, m * k);
  fill(stream, b, dtype, n * k);
  cuda::MatmulLibrary matmul(tf32);
  const cuda::Product product{
      {.m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n, .transpose_b = true}, dtype, dtype};
  const double seconds =
      stream.seconds(effort, [&] { matmul.run(stream, product, a.at(), b.at(), nullptr, c.at()); });
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
}

GpuCopyRates measure_copies(std::int64_t bytes, const GpuEffort& effort) {
  require(bytes > 0, "a copy of ", bytes, " bytes: give 1 or more");
  require(effort.tries > 0, "a rate wants one try or more, not ", effort.tries);
  const Stream stream;
  const Memory from(static_cast<std::size_t>(bytes), "the source of a copy"),
      to(static_cast<std::size_t>(bytes), "the target of a copy");
  const PinnedMemory host(bytes);
  check(cudaMemsetAsync(from.at(), 1, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
  const auto rate = [&](void* target, const void* source, cudaMemcpyKind kind) {
    return static_cast<double>(bytes) / stream.seconds(effort, [&] {
      check(cudaMemcpyAsync(target, source, static_cast<std::size_t>(bytes), kind, stream),
            "cudaMemcpyAsync");
    });
  };
  GpuCopyRates rates;
  rates.within = 2 * rate(to.at(), from.at(), cudaMemcpyDeviceToDevice);
  rates.to_host = rate(host.at(), from.at(), cudaMemcpyDeviceToHost);
  rates.to_device = rate(to.at(), host.at(), cudaMemcpyHostToDevice);
  return rates;
}

std::string gpu_name() {
  int device = 0, count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  require(error == cudaSuccess && count > 0, "there is no GPU (",
          error == cudaSuccess ? "none is visible" : cudaGetErrorString(error),
          "); 'meshbench doctor mode=nccl+threads' says what is missing");
  check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties.name;
}

}  // namespace mb
