// Capture of streams, and graphs, of the emulation.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/cuda_emulation/emulation.h"

namespace mb::cuda_emulation {
namespace {

class CudaGraph : public testing::Test {
 protected:
  void SetUp() override {
    reset({.most_delay_us = 200});
    for (cudaStream_t* stream : {&a_, &b_}) cudaStreamCreateWithFlags(stream, 0);
    for (cudaEvent_t* event : {&fork_, &join_})
      cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    void* data = nullptr;
    cudaMalloc(&data, 4);
    bytes_ = static_cast<unsigned char*>(data);
  }
  void TearDown() override {
    for (cudaStream_t stream : {a_, b_}) cudaStreamDestroy(stream);
    for (cudaEvent_t event : {fork_, join_}) cudaEventDestroy(event);
    EXPECT_TRUE(faults().empty());
  }

  void begin() { ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess); }
  void wait(cudaStream_t waiter, cudaEvent_t event, cudaStream_t other) {
    EXPECT_EQ(cudaEventRecord(event, other), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(waiter, event, 0), cudaSuccess);
  }
  // a: value; b, after it: a copy; a, after that: 0.
  cudaGraph_t captured(int value) {
    begin();
    cudaMemsetAsync(bytes_, value, 1, a_);
    wait(b_, fork_, a_);
    cudaMemcpyAsync(bytes_ + 1, bytes_, 1, cudaMemcpyDeviceToDevice, b_);
    wait(a_, join_, b_);
    cudaMemsetAsync(bytes_, 0, 1, a_);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
    return graph;
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  unsigned char* bytes_ = nullptr;
};

TEST_F(CudaGraph, RunsWhenItIsLaunchedInTheOrderOfStreamsAndEvents) {
  std::memset(bytes_, 9, 2);
  cudaGraph_t graph = captured(1);
  cudaStreamSynchronize(b_);
  EXPECT_EQ(bytes_[1], 9) << "ran as it was captured";
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int value = 2; value < 12; ++value) {
    EXPECT_EQ(cudaGraphLaunch(ready, a_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
    EXPECT_EQ(bytes_[1], value - 1);
    EXPECT_EQ(bytes_[0], 0);
    graph = captured(value);
    cudaGraphExecUpdateResultInfo info;
    EXPECT_EQ(cudaGraphExecUpdate(ready, graph, &info), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  begin();
  cudaMemsetAsync(bytes_, 1, 1, a_);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
  cudaGraphExecUpdateResultInfo info;
  EXPECT_EQ(cudaGraphExecUpdate(ready, graph, &info), cudaErrorGraphExecUpdateFailure);
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(ready);
}

TEST_F(CudaGraph, WorkThatNothingJoinsIsRefused) {
  begin();
  wait(b_, fork_, a_);
  cudaMemsetAsync(bytes_, 1, 1, b_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(CudaGraph, WaitsForWhatIsNotCapturedAreRefused) {
  cudaEventRecord(join_, b_);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a_, join_, 0), cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudaGraph, TheHostCannotWaitForWhatIsCaptured) {
  begin();
  cudaEventRecord(fork_, a_);
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  char local = 0;
  EXPECT_EQ(cudaMemcpyAsync(&local, bytes_, 1, cudaMemcpyDeviceToHost, a_),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace mb::cuda_emulation
