// Ranks on emulated GPUs: nothing depends on how fast streams are, and what goes wrong is told with
// rank, device, stream and instruction.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"
#include "tests/support/error.h"
#include "tests/support/training.h"

namespace mb {
namespace {

namespace emulation = cuda_emulation;

// Every stream of the Plan in few ranks: tp, dp, pp and copies.
constexpr const char* kRich =
    "model=gpt-tiny model.layers=4 mesh=pp2.dp2.tp2 bucket=20000 global_batch=8 zero=2 "
    "sequence_parallel=on offload=all optimizer=sgd learning_rate=0.1";

test::Trained trained(const std::string& words) {
  return test::train(test::case_of(words), {.steps = 2});
}

bool equal(const test::Trained& one, const test::Trained& other) {
  return one.gradients == other.gradients && one.parameters == other.parameters;
}

class CudaRank : public testing::Test {
 protected:
  void SetUp() override { emulation::reset({.devices = 4}); }
};

TEST_F(CudaRank, TrainsToTheSameBitsHoweverSlowStreamsAre) {
  const test::Trained calm = trained(kRich);
  for (const std::uint64_t seed : {1, 2}) {
    emulation::reset({.devices = 4, .most_delay_us = 100, .seed = seed});
    EXPECT_TRUE(equal(trained(kRich), calm)) << seed;
  }
}

TEST_F(CudaRank, TrainsToTheSameBitsWithAGraphForEachStep) {
  for (const char* words :
       {"model=gpt-tiny global_batch=8 dropout=0.1 offload=all recompute=full dtype=bf16",
        "model=moe-tiny model.capacity_factor=1.25 global_batch=8"}) {
    const auto trained_with = [&](const char* graph) {
      return test::train(test::case_of(cat(words, " mode=cuda+threads graph=", graph)),
                         {.steps = 3, .poison = true});
    };
    const test::Trained calm = trained_with("off");
    EXPECT_EQ(emulation::calls("cudaGraphLaunch"), 0);
    emulation::reset({.devices = 4, .most_delay_us = 20});
    EXPECT_TRUE(equal(trained_with("on"), calm)) << words;
    EXPECT_EQ(emulation::calls("cudaGraphLaunch"), 2);
    EXPECT_EQ(emulation::calls("cudaGraphInstantiate"), 1);
    emulation::reset({.devices = 4});
  }
}

TEST_F(CudaRank, TrainsAsOneRankOnACpu) {
  const Case c = test::case_of(cat(kRich, " dtype=fp64"));
  const test::TrainOptions two{.steps = 2};
  test::expect_equal(test::train(c, two), test::oracle_of(c, two), tolerance_of(c.options.dtype));
}

TEST_F(CudaRank, AllocatesNothingOnceItHasTakenAStep) {
  const Case c = test::case_of(kRich);
  test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
  trainer.step();
  const auto allocations = [] {
    return emulation::calls("cudaMalloc") + emulation::calls("cudaHostAlloc") +
           emulation::calls("cudaEventCreateWithFlags");
  };
  const std::int64_t before = allocations();
  trainer.step();
  trainer.step();
  EXPECT_EQ(allocations(), before);
}

// One step of a case in which something goes wrong, which `prepare` says once ranks are there.
template <class Prepare>
std::string message_of_step(const std::string& words, Prepare prepare,
                            const BatchSource* batches = nullptr) {
  const Case c = test::case_of(words);
  test::Trainer trainer(c.model, c.mesh, c.options,
                        {.global_batch = c.global_batch, .batches = batches});
  prepare();
  return message_of([&] { trainer.step(); });
}

constexpr const char* kTwo = "model=gpt-tiny mesh=dp2 global_batch=8";

TEST_F(CudaRank, ALaunchThatFailsNamesRankDeviceStreamAndInstruction) {
  const std::string message = message_of_step(kTwo, [] {
    emulation::fail("cublasLtMatmul", 1, 14);  // CUBLAS_STATUS_INTERNAL_ERROR
  });
  EXPECT_EQ(message.find("rank "), 0u) << message;
  EXPECT_NE(message.find(" on cuda device "), std::string::npos) << message;
  EXPECT_NE(message.find(" compute, F"), std::string::npos) << message;
  EXPECT_NE(message.find("matmul"), std::string::npos) << message;
  EXPECT_NE(message.find("cublasLtMatmul: cuBLASLt status 14"), std::string::npos) << message;
}

TEST_F(CudaRank, AFaultOfAKernelEndsAllRanksAndSaysWhatToTry) {
  const std::string message = message_of_step(kTwo, [] {
    emulation::fail("kernel launch", 7, 719, /*sticky=*/true);  // cudaErrorLaunchFailure
  });
  EXPECT_NE(message.find(" on cuda device "), std::string::npos) << message;
  EXPECT_NE(message.find("cudaErrorLaunchFailure"), std::string::npos) << message;
  EXPECT_NE(message.find("CUDA_LAUNCH_BLOCKING=1"), std::string::npos) << message;
}

TEST_F(CudaRank, OutOfMemoryKeepsTheBytesNeededAndThere) {
  emulation::reset({.devices = 1, .memory_bytes = 1 << 16});
  const Case c = test::case_of(kTwo);
  try {
    test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.needed_bytes, error.free_bytes);
    EXPECT_EQ(std::string(error.what()).find("rank "), 0u) << error.what();
    EXPECT_NE(std::string(error.what())
                  .find("cuda device 0 is out of memory: the memory of a rank "
                        "takes "),
              std::string::npos)
        << error.what();
  }
}

class FailingBatches : public BatchSource {
 public:
  void load(std::int64_t, int, int micro_batch, std::int64_t, std::int64_t, std::int32_t* tokens,
            std::int32_t* labels) const override {
    if (micro_batch == 3) throw Error("the text has ended");
    for (std::int32_t* to : {tokens, labels}) {
      if (to) std::fill_n(to, 16, 1);
    }
  }
};

TEST_F(CudaRank, WhatLoadingThrowsEndsTheStepEvenAtTheLastMicroBatch) {
  const FailingBatches batches;
  const std::string message = message_of_step(
      kTwo, [] {}, &batches);
  EXPECT_EQ(message.find("rank "), 0u) << message;
  EXPECT_NE(message.find("the text has ended"), std::string::npos) << message;
}

}  // namespace
}  // namespace mb
