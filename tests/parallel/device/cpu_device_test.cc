#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "parallel/device/device.h"
#include "tests/support/error.h"

namespace mb {
namespace {

TEST(CpuDevice, RunsAStreamInOrderAndCountsItsEventsFromOne) {
  const auto device = make_cpu_device(1, "r0");
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    const Event event = device->submit(0, [&order, i] { order.push_back(i); });
    ASSERT_EQ(event.ticket, i + 1);
    ASSERT_EQ(event.stream, 0);
  }
  device->synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[i], i);
}

TEST(CpuDevice, RunsStreamsAtTheSameTime) {
  const auto device = make_cpu_device(2, "r0");
  std::promise<void> ping, pong;
  device->submit(0, [&] {
    ping.set_value();
    pong.get_future().wait();
  });
  device->submit(1, [&] {
    ping.get_future().wait();
    pong.set_value();
  });
  device->synchronize();
}

TEST(CpuDevice, StartsNothingBeforeTheEventItWaitsFor) {
  const auto device = make_cpu_device(2, "r0");
  std::promise<void> go;
  std::atomic<bool> done{false};
  const Event event = device->submit(0, [&] {
    go.get_future().wait();
    done = true;
  });
  bool seen = false;
  device->wait(1, event);
  device->submit(1, [&] { seen = done; });
  go.set_value();
  device->synchronize();
  EXPECT_TRUE(seen);
}

TEST(CpuDevice, DoesNotWaitForEventsThatHavePassed) {
  const auto device = make_cpu_device(3, "r0");
  const Event event = device->submit(0, [] {});
  device->synchronize();
  std::promise<void> hold;
  device->submit(0, [&] { hold.get_future().wait(); });
  device->wait(1, event);
  device->wait(1, Event{});
  device->wait(0, event);
  std::promise<void> ran;
  device->submit(1, [&] { ran.set_value(); });
  ran.get_future().wait();
  hold.set_value();
  device->synchronize();
}

TEST(CpuDevice, RefusesToWaitForWhatIsNotSubmitted) {
  const auto device = make_cpu_device(2, "r0");
  EXPECT_EQ(
      message_of([&] {
        device->wait(1, {0, 1});
      }),
      "device r0: stream 1 would wait for ticket 1 of stream 0, which has not been submitted");
  EXPECT_EQ(message_of([&] { device->submit(2, [] {}); }), "device r0 has no stream 2 of 2");
  EXPECT_EQ(message_of([&] { device->submit(0, nullptr); }),
            "device r0: stream 0 was given empty work");
  EXPECT_EQ(message_of([] { make_cpu_device(0, "r0"); }),
            "device r0 wants at least one stream, not 0");
}

TEST(CpuDevice, RethrowsTheFirstExceptionAndSkipsWhatFollows) {
  const auto device = make_cpu_device(2, "r0");
  std::promise<void> queued;
  std::atomic<int> ran{0};
  const Event failing = device->submit(0, [&] {
    queued.get_future().wait();
    throw Error("matmul fell over");
  });
  device->wait(1, failing);
  for (int i = 0; i < 10; ++i) {
    device->submit(0, [&] { ++ran; });
    device->submit(1, [&] {
      ++ran;
      throw Error("and so did I");
    });
  }
  queued.set_value();
  EXPECT_EQ(message_of([&] { device->synchronize(); }), "matmul fell over");
  device->submit(1, [&] { ++ran; });
  EXPECT_EQ(message_of([&] { device->synchronize(); }), "matmul fell over");
  EXPECT_EQ(ran, 0);
}

TEST(CpuDevice, EventsOfSkippedWorkPass) {
  const auto device = make_cpu_device(3, "r0");
  device->submit(0, [] { throw Error("no"); });
  for (int i = 0; i < 100; ++i) {
    device->wait(1, device->submit(0, [] {}));
    device->wait(2, device->submit(1, [] {}));
    device->wait(0, device->submit(2, [] {}));
  }
  EXPECT_EQ(message_of([&] { device->synchronize(); }), "no");
}

TEST(CpuDevice, DropsWhatWorkHasCapturedBeforeItsEventPasses) {
  const auto device = make_cpu_device(1, "r0");
  auto captured = std::make_shared<int>(1);
  device->submit(0, [captured] {});
  device->synchronize();
  EXPECT_EQ(captured.use_count(), 1);
}

TEST(CpuDevice, CanEndWhileStreamsWaitForEachOther) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::promise<void> go;
    auto device = make_cpu_device(2, "r0");
    device->submit(0, [&] { go.get_future().wait(); });
    for (int i = 0; i < 20; ++i) {
      device->wait(1, device->submit(0, [] {}));
      device->wait(0, device->submit(1, [] {}));
    }
    device->wait(1, device->submit(0, [] {}));
    std::thread end([&] { device.reset(); });
    go.set_value();
    end.join();
  }
}

TEST(CpuDevice, LosesNoWakeUpIn100000HandOffs) {
  const auto device = make_cpu_device(3, "r0");
  constexpr int rounds = 25'000;
  int turn = 0, wrong = 0;  // plain: the events are what orders the accesses
  Event last;
  for (int i = 0; i < rounds; ++i) {
    for (int stream = 0; stream < 3; ++stream) {
      device->wait(stream, last);
      last = device->submit(
          stream, [&turn, &wrong, expected = 3 * i + stream] { wrong += turn++ != expected; });
    }
    if (i % 100 == 0) device->synchronize();
  }
  device->synchronize();
  EXPECT_EQ(turn, 3 * rounds);
  EXPECT_EQ(wrong, 0);
  for (int i = 0; i < 25'000; ++i) {  // and between the caller and a worker that has gone to sleep
    device->submit(0, [&turn] { ++turn; });
    device->synchronize();
  }
  EXPECT_EQ(turn, 3 * rounds + 25'000);
}

TEST(CpuDevice, NamesItsThreads) {
  const auto device = make_cpu_device(2, "rank1234567890");
  char name[16] = "";
  device->submit(1, [&] { pthread_getname_np(pthread_self(), name, sizeof name); });
  device->synchronize();
  EXPECT_STREQ(name, "rank1234567890.");

  const auto other = make_cpu_device(2, "r3");
  other->submit(1, [&] { pthread_getname_np(pthread_self(), name, sizeof name); });
  other->synchronize();
  EXPECT_STREQ(name, "r3.1");
}

TEST(CpuDevice, AllocatesAlignedMemoryOfAnySize) {
  const auto device = make_cpu_device(1, "r0");
  for (const std::size_t bytes : {0, 1, 64, 100, 4097, 2 << 20, 5'000'001}) {
    void* memory = device->allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (bytes < 2 << 20 ? 64 : 2 << 20), 0u);
    std::memset(memory, 1, bytes);
  }
  EXPECT_NE(message_of([&] { device->allocate(~std::size_t{0} - 10); }), "no Error");
}

TEST(CpuDevice, CopiesBothWays) {
  const auto device = make_cpu_device(1, "r0");
  auto* there = static_cast<int*>(device->allocate(3 * sizeof(int)));
  const std::vector<int> sent = {1, 2, 3};
  std::vector<int> got(3);
  device->copy_to_device(there, sent.data(), 3 * sizeof(int));
  device->copy_to_host(got.data(), there, 3 * sizeof(int));
  EXPECT_EQ(got, sent);
}

TEST(Clock, DoesNotRunBackwards) {
  std::int64_t last = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t now = now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace mb
