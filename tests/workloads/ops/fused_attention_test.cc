// Attention by cuDNN's graphs, as the emulation computes them, beside tiles of products.
#include "workloads/ops/fused_attention.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/cuda_emulation/emulation.h"
#include "workloads/base/cuda_memory.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"
#include "workloads/ops/cuda_ops.h"
#include "workloads/ops/cudnn_api.h"

namespace mb::cuda {
namespace {

namespace emulation = cuda_emulation;

// Bytes of an operand of `elements`.
using Bytes = std::vector<std::byte>;

template <class T>
Bytes noise(std::uint64_t seed, std::int64_t elements) {
  Bytes bytes(elements * sizeof(T));
  for (std::int64_t i = 0; i < elements; ++i) {
    const double unit = static_cast<double>(mix64(seed * 1000003 + i) >> 11) * 0x1p-53;
    const T value = static_cast<float>(2 * unit - 1);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof value);
  }
  return bytes;
}
template <class T>
std::vector<float> values(const Bytes& bytes) {
  std::vector<float> result;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, &bytes[i], sizeof value);
    result.push_back(float(value));
  }
  return result;
}

// A stream of a new device 0.
class Runner {
 public:
  explicit Runner(bool fused) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    ops_ = std::make_unique<StreamOps>(stream_, StreamOptions{.fused_attention = fused});
  }
  ~Runner() {
    ops_.reset();
    cudaStreamDestroy(stream_);
  }
  // Operands in device memory; what is written starts as the emulation's NaN, or as `written`.
  void run(const Op& op, const std::vector<Bytes>& reads, std::vector<Bytes>& written,
           bool keep = false) {
    std::vector<Memory> memory;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const Bytes& bytes : reads) from.push_back(put(memory, bytes, true));
    for (const Bytes& bytes : written) to.push_back(put(memory, bytes, keep));
    ops_->prepare(op);
    const int before = emulation::memory(0).allocations;
    ops_->run(op, {}, from, to);
    EXPECT_EQ(emulation::memory(0).allocations, before);
    for (std::size_t i = 0; i < written.size(); ++i)
      check(cudaMemcpyAsync(written[i].data(), to[i], written[i].size(), cudaMemcpyDeviceToHost,
                            stream_),
            "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  void* put(std::vector<Memory>& memory, const Bytes& bytes, bool copies) {
    void* const at = memory.emplace_back(bytes.size(), "an operand").at();
    if (copies)
      check(cudaMemcpyAsync(at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
    return at;
  }
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StreamOps> ops_;
};

struct Results {
  std::vector<float> out, lse, dqkv;
};

constexpr std::int64_t kBatch = 2, kHeads = 4, kHeadDim = 8, kSequence = 24;

template <class T>
Results attend(bool fused, std::int64_t kv_heads, DType dtype) {
  Runner runner(fused);
  const std::int64_t rows = kBatch * kSequence, row = (kHeads + 2 * kv_heads) * kHeadDim;
  const Bytes qkv = noise<T>(1, rows * row), dout = noise<T>(2, rows * kHeads * kHeadDim);
  std::vector<Bytes> saved = {Bytes(rows * kHeads * kHeadDim * sizeof(T)),
                              Bytes(rows * kHeads * sizeof(float))};
  runner.run({Attention{kBatch, kSequence, kHeads, kv_heads, kHeadDim}, dtype}, {qkv}, saved);
  std::vector<Bytes> gradient = {Bytes(rows * row * sizeof(T))};
  runner.run({AttentionGradient{kBatch, kSequence, kHeads, kv_heads, kHeadDim}, dtype},
             {dout, qkv, saved[0], saved[1]}, gradient);
  return {values<T>(saved[0]), values<float>(saved[1]), values<T>(gradient[0])};
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

class FusedAttentionTest : public testing::Test {
 protected:
  void SetUp() override { emulation::reset({.most_delay_us = 20}); }
  void TearDown() override {
    for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
  }
};

template <class T>
void expect_the_same(DType dtype, float tolerance) {
  for (const std::int64_t kv_heads : {kHeads, kHeads / 2, std::int64_t{1}}) {
    const Results fused = attend<T>(true, kv_heads, dtype);
    EXPECT_EQ(emulation::calls("cudnnBackendExecute"), 2);
    const Results tiled = attend<T>(false, kv_heads, dtype);
    EXPECT_EQ(emulation::calls("cudnnBackendExecute"), 2);
    expect_near(fused.out, tiled.out, tolerance);
    expect_near(fused.lse, tiled.lse, 1e-5f);
    expect_near(fused.dqkv, tiled.dqkv, tolerance);
    emulation::reset();
  }
}
TEST_F(FusedAttentionTest, EqualsTilesInBf16) { expect_the_same<Bf16>(DType::bf16, 0x1p-6f); }
TEST_F(FusedAttentionTest, EqualsTilesInFp16) { expect_the_same<Fp16>(DType::fp16, 0x1p-9f); }

// The first step of a ring starts what later ones, of tiles, go on with.
TEST_F(FusedAttentionTest, StartsARing) {
  const std::int64_t rows = kBatch * kSequence / 2;
  const std::vector<Bytes> reads = {noise<Bf16>(3, rows * 3 * kHeads * kHeadDim),
                                    noise<Bf16>(4, rows * 2 * kHeads * kHeadDim)};
  std::vector<std::vector<Bytes>> results;
  for (const bool fused : {true, false}) {
    Runner runner(fused);
    std::vector<Bytes> written = {Bytes(rows * kHeads * kHeadDim * sizeof(Bf16)),
                                  Bytes(rows * kHeads * sizeof(float))};
    for (const int step : {0, 1})
      runner.run({RingAttention{kBatch, kSequence, kHeads, kHeads, kHeadDim, {2, true}, step},
                  DType::bf16},
                 reads, written, step > 0);
    results.push_back(written);
  }
  EXPECT_EQ(emulation::calls("cudnnBackendExecute"), 1);
  expect_near(values<Bf16>(results[0][0]), values<Bf16>(results[1][0]), 0x1p-6f);
  expect_near(values<float>(results[0][1]), values<float>(results[1][1]), 1e-5f);
}

// --- where there are no fused kernels ---

bool is_noted(const std::string& part) {
  for (const std::string& backend : attention_backends()) {
    if (backend.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_F(FusedAttentionTest, GoesBackToTilesAndSaysWhy) {
  const Results tiled = attend<Bf16>(false, kHeads, DType::bf16);
  const auto expect_tiled = [&](const std::string& reason) {
    EXPECT_EQ(attend<Bf16>(true, kHeads, DType::bf16).out, tiled.out);
    EXPECT_EQ(emulation::calls("cudnnBackendExecute"), 0);
    EXPECT_TRUE(is_noted("tiles of products: " + reason)) << reason;
  };
  EXPECT_TRUE(is_noted("tiles of products: attention=tiled"));
  emulation::reset({.cudnn_version = -1});
  expect_tiled("cuDNN is not there");
  emulation::reset({.cudnn_version = 90501});
  expect_tiled("cuDNN 9.5.1 is older than 9.6.0");
  emulation::reset();
  emulation::fail("cudnnCreate", 1, CUDNN_STATUS_NOT_INITIALIZED);
  emulation::fail("cudnnCreate", 2, CUDNN_STATUS_NOT_INITIALIZED);
  expect_tiled("cudnnCreate: ");
  emulation::reset();
  emulation::fail("cudnnBackendFinalize", 1, CUDNN_STATUS_NOT_SUPPORTED);
  emulation::fail("cudnnBackendFinalize", 2, CUDNN_STATUS_NOT_SUPPORTED);
  expect_tiled("cuDNN has no kernel for it: CUDNN_STATUS_NOT_SUPPORTED");
}

TEST_F(FusedAttentionTest, OlderLibrariesHaveGradientsOfWholeBlocksAlone) {
  emulation::reset({.cudnn_version = 91500});
  attend<Bf16>(true, kHeads, DType::bf16);
  EXPECT_EQ(emulation::calls("cudnnBackendExecute"), 1);  // the forward
  EXPECT_TRUE(is_noted("sequences of 24 are no multiple of 128, as cuDNN 9.15.0 wants"));
}

TEST_F(FusedAttentionTest, ItsErrorsEndTheStep) {
  emulation::fail("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED);
  try {
    attend<Bf16>(true, kHeads, DType::bf16);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cudnnBackendExecute: "), std::string::npos);
  }
}

}  // namespace
}  // namespace mb::cuda
