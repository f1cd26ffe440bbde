// Streams, events, memory and errors of a CUDA device, on an emulated one.
#include "parallel/device/cuda_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/error.h"

namespace mb {
namespace {

namespace emulation = cuda_emulation;

constexpr std::size_t kBytes = 1000;

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override { emulation::reset({.devices = 2, .memory_bytes = 1 << 20}); }
  void TearDown() override {
    for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
  }

  static std::unique_ptr<Device> make(int streams, int device = 0) {
    return make_cuda_device({.device = device}, streams, "g0");
  }
  static std::vector<std::uint8_t> bytes_of(Device& device, const void* at) {
    std::vector<std::uint8_t> bytes(kBytes);
    device.copy_to_host(bytes.data(), at, kBytes);
    return bytes;
  }
  static std::vector<std::uint8_t> all(int value) {
    return std::vector<std::uint8_t>(kBytes, static_cast<std::uint8_t>(value));
  }
};

TEST_F(CudaDevice, CopiesAndFillsBothKindsOfMemory) {
  const auto device = make(1);
  void *a = device->allocate(kBytes), *b = device->allocate_host(kBytes);
  EXPECT_FALSE(device->memory_is_host());
  device->fill(a, std::byte{1}, kBytes);
  device->fill(b, std::byte{2}, kBytes);
  EXPECT_EQ(bytes_of(*device, a), all(1));
  EXPECT_EQ(bytes_of(*device, b), all(2));
  device->copy_to_device(b, all(3).data(), kBytes);
  device->begin_step(false);
  device->submit(0, [&] {
    device->copy(0, a, b, kBytes);
    device->fill(0, b, std::byte{4}, kBytes);
  });
  device->synchronize();
  EXPECT_EQ(bytes_of(*device, a), all(3));
  EXPECT_EQ(bytes_of(*device, b), all(4));
}

// What stream 1 copies depends on the wait alone: streams of the emulation are slow at random.
TEST_F(CudaDevice, StreamsWaitForEventsOnTheDevice) {
  emulation::reset({.most_delay_us = 200});
  const auto device = make(2);
  void *a = device->allocate(kBytes), *b = device->allocate(kBytes);
  for (int step = 0; step < 20; ++step) {
    device->begin_step(step % 2 == 1);
    const Event filled =
        device->submit(0, [&, step] { device->fill(0, a, std::byte(step), kBytes); });
    device->wait(1, filled);
    const Event copied = device->submit(1, [&] { device->copy(1, b, a, kBytes); });
    device->wait(0, copied);
    device->submit(0, [&] { device->fill(0, a, std::byte{99}, kBytes); });
    device->synchronize();
    ASSERT_EQ(bytes_of(*device, b), all(step)) << step;
  }
}

TEST_F(CudaDevice, AllocatesNothingInLaterSteps) {
  const auto device = make(2);
  void* a = device->allocate(kBytes);
  const auto step = [&] {
    device->begin_step(true);
    for (int i = 0; i < 200; ++i) {
      device->wait(1, device->submit(0, [&] {
        device->mark(0);
        device->fill(0, a, std::byte{1}, kBytes);
      }));
      device->submit(
          1, [&] { device->mark(1); }, false);
    }
    device->synchronize();
  };
  step();
  const std::vector<const char*> calls = {"cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags",
                                          "cudaStreamCreateWithPriority"};
  std::vector<std::int64_t> before, after;
  for (const char* call : calls) before.push_back(emulation::calls(call));
  step();
  step();
  for (const char* call : calls) after.push_back(emulation::calls(call));
  EXPECT_EQ(before, after);
}

TEST_F(CudaDevice, MarksAreTimesOfTheHostsClock) {
  const auto device = make(2);
  void* a = device->allocate(kBytes);
  const std::int64_t before = now_ns();
  std::vector<Span> spans(3);
  device->begin_step(true);
  device->submit(0, [&] {
    spans[0].start_ns = device->mark(0);
    device->fill(0, a, std::byte{1}, kBytes);
    spans[0].end_ns = device->mark(0);
  });
  device->wait(1, device->submit(0, [] {}));
  device->submit(1, [&] { spans[1] = {device->mark(1), device->mark(1)}; });
  device->synchronize();
  device->resolve(spans);
  const std::int64_t off = 2 * device->clock_uncertainty_ns() + 1000;  // and of float ms
  EXPECT_GE(spans[0].start_ns, before - off);
  EXPECT_LE(spans[0].start_ns, spans[0].end_ns);
  EXPECT_LE(spans[0].end_ns, spans[1].start_ns + off);
  EXPECT_LE(spans[1].start_ns, spans[1].end_ns);
  EXPECT_LE(spans[1].end_ns, now_ns() + off);
  EXPECT_EQ(spans[2], Span{}) << "never ran";
}

TEST_F(CudaDevice, PassedCountsEventsThatTheDeviceHasComeTo) {
  const auto device = make(1);
  const std::int64_t before = device->passed();
  device->begin_step(false);
  for (int i = 0; i < 130; ++i)
    device->submit(
        0, [] {}, /*awaited=*/false);
  device->synchronize();
  EXPECT_EQ(device->passed() - before, 2) << "every 64th";
  device->begin_step(false);
  device->submit(0, [] {});
  device->synchronize();
  EXPECT_EQ(device->passed() - before, 3);
}

TEST_F(CudaDevice, ShowsBytesInTheOrderOfTheStreamAndKeepsWhatIsThrown) {
  const auto device = make(1);
  void* a = device->allocate(kBytes);
  std::vector<int> seen;
  device->begin_step(false);
  device->submit(0, [&] {
    for (int value : {5, 6}) {
      device->fill(0, a, std::byte(value), 8);
      device->show(0, a, 8, [&](std::span<const std::byte> bytes) {
        seen.push_back(std::to_integer<int>(bytes[7]));
      });
    }
  });
  device->synchronize();
  EXPECT_EQ(seen, (std::vector{5, 6}));
  device->submit(
      0, [&] { device->show(0, a, 8, [](std::span<const std::byte>) { throw Error("not so"); }); });
  EXPECT_EQ(message_of([&] { device->synchronize(); }), "not so");
}

TEST_F(CudaDevice, RunsOutOfMemoryWithTheBytesThatItTakesAndHas) {
  const auto device = make(1, 1);
  device->allocate(900 << 10);
  try {
    device->allocate(200 << 10);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.needed_bytes, 200 << 10);
    EXPECT_EQ(error.free_bytes, (1 << 20) - (900 << 10));
    EXPECT_EQ(std::string(error.what()),
              "cuda device 1 is out of memory: the memory of a rank takes 200 KiB, and of 1 MiB "
              "there are 124 KiB left");
  }
}

TEST_F(CudaDevice, AFaultOfTheDeviceEndsTheStep) {
  const auto device = make(2);
  float host = 0;
  device->begin_step(false);
  device->submit(1, [&] { device->fill(1, &host, std::byte{1}, 4); });
  // Of the stream, or where the device was quick, of the next call.
  const std::string message = message_of([&] { device->synchronize(); });
  EXPECT_NE(message.find("cudaErrorIllegalAddress, an illegal memory access was encountered; the "
                         "fault is of an earlier kernel"),
            std::string::npos)
      << message;
  EXPECT_EQ(emulation::faults().size(), 1u);
  emulation::reset();
}

TEST_F(CudaDevice, ALaunchThatFailsSkipsWhatIsQueued) {
  const auto device = make(2);
  void* a = device->allocate(kBytes);
  emulation::fail("cudaMemsetAsync", 1, 719);
  int ran = 0;
  device->begin_step(false);
  device->wait(1, device->submit(0, [&] { device->fill(0, a, std::byte{1}, kBytes); }));
  device->submit(1, [&] { ++ran; });
  EXPECT_NE(message_of([&] { device->synchronize(); }).find("cudaMemsetAsync"), std::string::npos);
  EXPECT_EQ(ran, 0);
}

TEST_F(CudaDevice, RefusesWhatIsNotThere) {
  EXPECT_EQ(message_of([] { make(1, 2); }), "there is no cuda device 2; the driver shows 2");
  const auto device = make(1);
  EXPECT_EQ(message_of([&] { device->submit(1, [] {}); }), "cuda device 0 has no stream 1 of 1");
  emulation::reset({.devices = 0});
  EXPECT_EQ(message_of(cuda_devices),
            "there is no CUDA device; 'nvidia-smi' lists those of the driver, and "
            "CUDA_VISIBLE_DEVICES may hide them");
  emulation::reset({.driver_version = 0});
  EXPECT_NE(message_of(cuda_devices).find("there is no NVIDIA driver"), std::string::npos);
}

}  // namespace
}  // namespace mb
