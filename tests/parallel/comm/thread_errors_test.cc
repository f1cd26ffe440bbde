#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/comm.h"
#include "tests/parallel/comm/thread_fixture.h"
#include "tests/support/comm_contract.h"
#include "tests/support/error.h"

namespace mb {
namespace {

using namespace test;

TEST(AllReduceMismatch, IsToldToEveryMemberWithTheTwoRanksAndValues) {
  ThreadWorld world(8);
  on_ranks(3, [&](int index) {
    const auto comm = world.comm("dp", {5, 3, 7}, std::vector<int>{5, 3, 7}[index]);
    std::vector<double> data(5000, 1.0);
    EXPECT_EQ(message_of([&] {
                comm->all_reduce(data.data(), index == 1 ? 4000 : 5, DType::fp32, ReduceOp::sum);
              }),
              "group dp: all_reduce of 5 fp32 sum on rank 5 meets all_reduce of 4000 fp32 sum on "
              "rank 3");
    EXPECT_EQ(message_of([&] {
                comm->all_reduce(data.data(), 5, index == 2 ? DType::fp64 : DType::fp32,
                                 ReduceOp::max);
              }),
              "group dp: all_reduce of 5 fp32 max on rank 5 meets all_reduce of 5 fp64 max on "
              "rank 7");
    EXPECT_EQ(message_of([&] {
                if (index == 0) return comm->barrier();
                comm->all_reduce(data.data(), 1, DType::fp32, ReduceOp::sum);
              }),
              "group dp: barrier on rank 5 meets all_reduce of 1 fp32 sum on rank 3");
    EXPECT_EQ(data, std::vector<double>(5000, 1.0));
  });
}

// Runs `call` on ranks 5, 3 and 7 and returns what each was told.
std::vector<std::string> told(const std::function<void(Comm&)>& call) {
  ThreadWorld world(8);
  std::vector<std::string> messages(3);
  on_ranks(3, [&](int index) {
    const auto comm = world.comm("dp", {5, 3, 7}, std::vector<int>{5, 3, 7}[index]);
    messages[index] = message_of([&] { call(*comm); });
    std::int32_t one = 1;  // the group can still be used
    comm->all_reduce(&one, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(one, 3);
  });
  return messages;
}

TEST(Mismatch, IsToldToEveryMemberWithWhatTwoOfThemCalled) {
  const auto all = [](const std::string& message) {
    return std::vector<std::string>(3, "group dp: " + message);
  };
  std::vector<std::vector<double>> buffers(6, std::vector<double>(6000));
  const auto a = [&](Comm& c) { return buffers[2 * c.index()].data(); };
  const auto b = [&](Comm& c) { return buffers[2 * c.index() + 1].data(); };
  const auto fp32 = DType::fp32;
  EXPECT_EQ(told([&](Comm& c) {
              c.index() == 1 ? c.shift(a(c), b(c), 4, fp32) : c.all_gather(a(c), b(c), 4, fp32);
            }),
            all("all_gather of 4 fp32 each on rank 5 meets shift of 4 fp32 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.all_gather(a(c), b(c), c.index() == 2 ? 1500 : 4, fp32); }),
            all("all_gather of 4 fp32 each on rank 5 meets all_gather of 1500 fp32 each on rank "
                "7"));
  EXPECT_EQ(told([&](Comm& c) {
              c.reduce_scatter(a(c), b(c), 4, fp32, c.index() == 1 ? ReduceOp::max : ReduceOp::sum);
            }),
            all("reduce_scatter of 4 fp32 each sum on rank 5 meets reduce_scatter of 4 fp32 each "
                "max on rank 3"));
  EXPECT_EQ(
      told([&](Comm& c) { c.all_to_all(a(c), b(c), 4, c.index() == 1 ? DType::bf16 : fp32); }),
      all("all_to_all of 4 fp32 each on rank 5 meets all_to_all of 4 bf16 each on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.shift(a(c), b(c), c.index() == 1 ? 5 : 4, fp32); }),
            all("shift of 4 fp32 on rank 5 meets shift of 5 fp32 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.broadcast(a(c), 4, fp32, c.index() == 0 ? 0 : 1); }),
            all("broadcast of 4 fp32 from member 0 on rank 5 meets broadcast of 4 fp32 from member "
                "1 on rank 3"));
  EXPECT_EQ(
      told([&](Comm& c) { c.reduce(a(c), b(c), 4, fp32, ReduceOp::sum, c.index() == 2 ? 2 : 0); }),
      all("reduce of 4 fp32 sum to member 0 on rank 5 meets reduce of 4 fp32 sum to member 2 "
          "on rank 7"));
  EXPECT_EQ(told([&](Comm& c) {
              c.index() == 1 ? c.scatter(a(c), b(c), 4, fp32, 0) : c.gather(a(c), b(c), 4, fp32, 0);
            }),
            all("gather of 4 fp32 each to member 0 on rank 5 meets scatter of 4 fp32 each from "
                "member 0 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) {
              const std::vector<std::int64_t> counts = {1, 1, 1};
              c.all_to_all_v(a(c), counts, b(c), counts, c.index() == 1 ? DType::fp64 : fp32);
            }),
            all("all_to_all_v of fp32 on rank 5 meets all_to_all_v of fp64 on rank 3"));
}

TEST(Mismatch, OfOnePartOfAnAllToAllVIsToldToItsTwoMembers) {
  const std::string message =
      "group dp: all_to_all_v sends 3 elements from rank 3 to rank 7, which wants 4";
  EXPECT_EQ(told([](Comm& c) {
              std::vector<float> a(20, 1.0f), b(20, 2.0f);
              std::vector<std::int64_t> sent(3, 3), wanted(3, 3);
              if (c.index() == 2) wanted[1] = 4;
              c.all_to_all_v(a.data(), sent, b.data(), wanted, DType::fp32);
            }),
            (std::vector<std::string>{"no Error", message, message}));
}

// One member of three waits in `call`; whether the abort comes before, at or after its start is
// left to chance.
void expect_abort_wakes(const std::function<void(Comm&)>& call) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    ThreadWorld world(3);
    std::thread waiter([&] {
      const auto comm = world.comm("g", {0, 1, 2}, 1);
      for (int again = 0; again < 2; ++again) {
        try {
          call(*comm);
          ADD_FAILURE() << "came back";
        } catch (const Aborted& aborted) {
          EXPECT_STREQ(aborted.what(), "rank 2 fell over");
        }
      }
    });
    dawdle(repeat, 0);
    world.abort("rank 2 fell over");
    world.abort("rank 0 fell over");
    waiter.join();
    EXPECT_TRUE(world.aborted());
  }
}

TEST(Abort, WakesAllReduce) {
  for (const int count : {1, 5000}) {
    expect_abort_wakes([count](Comm& comm) {
      std::vector<float> data(count);
      comm.all_reduce(data.data(), count, DType::fp32, ReduceOp::sum);
    });
  }
}

TEST(Abort, WakesEveryCollective) {
  for (const int count : {1, 5000}) {
    using Kind = std::function<void(Comm&, float*, float*)>;
    const std::vector<std::int64_t> parts(3, count);
    const std::vector<Kind> kinds = {
        [&](Comm& c, float* a, float* b) { c.all_gather(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float* b) {
          c.reduce_scatter(a, b, count, DType::fp32, ReduceOp::sum);
        },
        [&](Comm& c, float* a, float* b) { c.all_to_all(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float* b) { c.all_to_all_v(a, parts, b, parts, DType::fp32); },
        [&](Comm& c, float* a, float* b) { c.shift(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float*) { c.broadcast(a, count, DType::fp32, 1); },
        [&](Comm& c, float* a, float* b) { c.reduce(a, b, count, DType::fp32, ReduceOp::sum, 1); },
        [&](Comm& c, float* a, float* b) { c.gather(a, b, count, DType::fp32, 0); },
        [&](Comm& c, float* a, float* b) { c.scatter(a, b, count, DType::fp32, 1); },
        [&](Comm& c, float* a, float* b) { c.send_recv(a, 4 * count, 0, b, 4 * count, 2); }};
    for (const Kind& kind : kinds) {
      expect_abort_wakes([&](Comm& comm) {
        std::vector<float> a(3 * count), b(3 * count);
        kind(comm, a.data(), b.data());
      });
    }
  }
}

TEST(Abort, WakesBarrier) {
  expect_abort_wakes([](Comm& comm) { comm.barrier(); });
}

TEST(Abort, WakesSend) {
  expect_abort_wakes([](Comm& comm) { comm.send("x", 1, 0); });
}

TEST(Abort, WakesRecv) {
  char x = 0;
  expect_abort_wakes([&x](Comm& comm) { comm.recv(&x, 1, 0); });
}

// Buffers die with the call that throws: a member that reduced into the buffer of one that has left
// would be caught by the sanitizers.
TEST(Abort, NeverLeavesAPeerInABufferThatIsGone) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    ThreadWorld world(4);
    on_ranks(4, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(4), rank);
      const auto pair = world.comm("pair", {rank & ~1, rank | 1}, rank);
      EXPECT_EQ(message_of([&] {
                  for (int call = 0;; ++call) {
                    if (rank == 3 && call == repeat % 10) world.abort("enough");
                    std::vector<float> data(2000 + 4 * call, 1.0f);
                    comm->all_reduce(data.data(), 2000 + 4 * call, DType::fp32, ReduceOp::sum);
                    ASSERT_EQ(data.back(), 4.0f);
                    if (rank % 2 == 0) pair->send(data.data(), 8000, 1);
                    if (rank % 2 == 1) pair->recv(data.data(), 8000, 0);
                  }
                }),
                "enough");
    });
  }
}

// As above for all kinds: whoever comes first into a call may be the one that leaves it early.
TEST(Abort, NeverLeavesAPeerInTheMiddleOfACollective) {
  for (int repeat = 0; repeat < 60; ++repeat) {
    ThreadWorld world(4);
    on_ranks(4, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(4), rank);
      EXPECT_EQ(message_of([&] {
                  for (int call = 0;; ++call) {
                    if (rank == repeat % 4 && call == repeat % 5) world.abort("enough");
                    Exercise<float>{*comm, call % 2 == 0 ? 2000 : 3, call}.all_kinds();
                  }
                }),
                "enough");
    });
  }
}

// The sender scribbles over its buffer as soon as it may.
TEST(Abort, DeliversAMessageToBothSidesOrToNeither) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    ThreadWorld world(3);
    std::atomic<bool> receiving{false};
    std::vector<char> sent(1 << 20, 1), got(1 << 20);
    std::string send_error, recv_error;
    on_ranks(3, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(3), rank);
      if (rank == 0) {
        send_error = message_of([&] { comm->send(sent.data(), 1 << 20, 1); });
        std::fill(sent.begin(), sent.end(), 2);
      }
      if (rank == 1) {
        receiving = true;
        recv_error = message_of([&] { comm->recv(got.data(), 1 << 20, 0); });
      }
      if (rank == 2) {
        while (!receiving) std::this_thread::yield();
        dawdle(repeat, 1);
        world.abort("enough");
      }
    });
    EXPECT_EQ(send_error, recv_error);
    EXPECT_EQ(std::count(got.begin(), got.end(), 1), recv_error == "no Error" ? 1 << 20 : 0);
  }
}

}  // namespace
}  // namespace mb
