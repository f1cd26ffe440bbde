// Steps of a CUDA device as graphs, on an emulated one.
#include <gtest/gtest.h>

#include <vector>

#include "parallel/device/cuda_device.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/error.h"

namespace mb {
namespace {

namespace emulation = cuda_emulation;

constexpr std::size_t kBytes = 1000;

class CudaDeviceGraph : public testing::Test {
 protected:
  void SetUp() override {
    emulation::reset({.memory_bytes = 1 << 20, .most_delay_us = 200});
    device_ = make_cuda_device({.device = 0, .graph = true}, 3, "g0");
    for (void** at : {&a_, &b_, &c_}) *at = device_->allocate(kBytes);
  }
  void TearDown() override {
    device_.reset();
    for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
  }

  // What stream 1 copies depends on waits alone; stream 2 has work that nothing waits for.
  void submit_copy(int value, std::vector<Span>* spans = nullptr) {
    const Event filled = device_->submit(0, [=, this] {
      if (spans) (*spans)[0].start_ns = device_->mark(0);
      device_->fill(0, a_, std::byte(value), kBytes);
      if (spans) (*spans)[0].end_ns = device_->mark(0);
    });
    device_->wait(1, filled);
    const Event copied = device_->submit(1, [=, this] {
      if (spans) (*spans)[1].start_ns = device_->mark(1);
      device_->copy(1, b_, a_, kBytes);
      if (spans) (*spans)[1].end_ns = device_->mark(1);
    });
    device_->wait(0, copied);
    device_->submit(0, [this] { device_->fill(0, a_, std::byte{99}, kBytes); });
    device_->submit(
        2, [=, this] { device_->fill(2, c_, std::byte(value), kBytes); }, /*awaited=*/false);
  }
  int last_of(const void* at) {
    std::vector<std::uint8_t> bytes(kBytes);
    device_->copy_to_host(bytes.data(), at, kBytes);
    return bytes.back();
  }

  std::unique_ptr<Device> device_;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
};

TEST_F(CudaDeviceGraph, EveryStepButTheFirstIsOneLaunchWithItsOwnArguments) {
  for (int step = 0; step < 20; ++step) {
    device_->begin_step(false);
    submit_copy(step);
    EXPECT_EQ(emulation::calls("cudaGraphLaunch"), std::max(step - 1, 0));
    device_->synchronize();
    ASSERT_EQ(last_of(b_), step);
    ASSERT_EQ(last_of(c_), step);
  }
  EXPECT_EQ(emulation::calls("cudaGraphLaunch"), 19);
  EXPECT_EQ(emulation::calls("cudaGraphInstantiate"), 1);
}

TEST_F(CudaDeviceGraph, MarksAreTakenWhenTheGraphRuns) {
  for (int step = 0; step < 6; ++step) {
    const bool record = step % 2 == 1;
    std::vector<Span> spans(2);
    device_->begin_step(record);
    const std::int64_t before = now_ns();
    submit_copy(step, record ? &spans : nullptr);
    device_->synchronize();
    ASSERT_EQ(last_of(b_), step);
    if (!record) continue;
    device_->resolve(spans);
    const std::int64_t off = 2 * device_->clock_uncertainty_ns() + 1000;  // and of float ms
    EXPECT_GE(spans[0].start_ns, before - off);
    EXPECT_LE(spans[0].start_ns, spans[0].end_ns);
    EXPECT_LE(spans[0].end_ns, spans[1].start_ns + off);
    EXPECT_LE(spans[1].end_ns, now_ns() + off);
  }
  EXPECT_EQ(emulation::calls("cudaGraphInstantiate"), 2) << "with marks and without";
}

TEST_F(CudaDeviceGraph, AStepOfOtherWorkGetsAGraphOfItsOwn) {
  for (int step = 0; step < 4; ++step) {
    device_->begin_step(false);
    for (int i = 0; i <= step; ++i) submit_copy(step + i);
    device_->synchronize();
    ASSERT_EQ(last_of(b_), 2 * step);
  }
  EXPECT_EQ(emulation::calls("cudaGraphInstantiate"), 3);
}

TEST_F(CudaDeviceGraph, PassedCountsAStepOnceTheNextBegins) {
  for (int step = 0; step < 3; ++step) {
    device_->begin_step(false);
    EXPECT_EQ(device_->passed(), 3 * step);
    submit_copy(step);
    device_->synchronize();
  }
}

TEST_F(CudaDeviceGraph, WorkThatWaitsForTheDeviceEndsTheStep) {
  device_->begin_step(false);
  device_->submit(0, [this] { device_->finish(0); });
  device_->synchronize();
  device_->begin_step(false);
  device_->submit(0, [this] { device_->finish(0); });
  EXPECT_NE(message_of([&] { device_->synchronize(); }).find("cudaErrorStreamCaptureUnsupported"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
