#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>

#include "parallel/comm/comm.h"
#include "tests/support/error.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

std::vector<int> first_ranks(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Runs `body(rank)` on a thread per rank.
void on_ranks(int n, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

// Runs `body(comm)` on all members of one group of `n` in a world of its own.
void in_group(int n, const std::function<void(Comm&)>& body) {
  ThreadWorld world(n);
  on_ranks(n, [&](int rank) { body(*world.comm("g", first_ranks(n), rank)); });
}

// Contributions of very different sizes, so that another order of additions shows in the bits.
template <class T>
std::vector<T> input(int member, std::int64_t count) {
  std::vector<T> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = random_normal(7, member, i);
    values[i] = static_cast<T>(i % 3 == 0 ? value * 1e6 : value);
  }
  return values;
}

template <class T>
std::vector<T> serial_reduce(int members, std::int64_t count, ReduceOp op) {
  std::vector<T> result = input<T>(0, count);
  for (int member = 1; member < members; ++member) {
    const std::vector<T> next = input<T>(member, count);
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = op == ReduceOp::sum ? result[i] + next[i] : std::max(result[i], next[i]);
    }
  }
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || !std::memcmp(&a[0], &b[0], a.size() * sizeof(T)));
}

// A pause that differs from call to call: nothing, a yield, or some work.
void dawdle(int member, int call) {
  const std::uint64_t draw = random_bits(3, member, call);
  if (draw % 4 == 0) std::this_thread::yield();
  volatile double sink = 0;
  for (std::uint64_t i = 0; draw % 4 == 1 && i < draw % 5000; ++i) sink = sink + 1;
}

template <class T>
void expect_serial_bits(int members, DType type, bool with_delays) {
  const std::vector<std::int64_t> counts = {0, 1, members - 1, members, members + 1, 1000, 100003};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    std::vector<std::vector<T>> expected;
    for (auto count : counts) expected.push_back(serial_reduce<T>(members, count, op));
    in_group(members, [&](Comm& comm) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (std::size_t c = 0; c < counts.size(); ++c) {
          std::vector<T> data = input<T>(comm.index(), counts[c]);
          if (with_delays) dawdle(comm.index(), static_cast<int>(repeat * counts.size() + c));
          comm.all_reduce(data.data(), counts[c], type, op);
          EXPECT_TRUE(same_bits(data, expected[c]))
              << "member " << comm.index() << " of " << members << ", count " << counts[c];
        }
      }
    });
  }
}

class AllReduce : public testing::TestWithParam<int> {};

TEST_P(AllReduce, HasTheBitsOfTheSerialReductionOnEveryMember) {
  expect_serial_bits<float>(GetParam(), DType::fp32, false);
  expect_serial_bits<double>(GetParam(), DType::fp64, false);
}

TEST_P(AllReduce, DoesNotDependOnWhoComesWhen) {
  expect_serial_bits<float>(GetParam(), DType::fp32, true);
}

INSTANTIATE_TEST_SUITE_P(Members, AllReduce, testing::Values(1, 2, 3, 4, 5, 8));

TEST(AllReduceMax, IsNanWhereAnyMemberHasNan) {
  in_group(3, [](Comm& comm) {
    for (int bad = 0; bad < 3; ++bad) {
      float x = comm.index() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      comm.all_reduce(&x, 1, DType::fp32, ReduceOp::max);
      EXPECT_TRUE(std::isnan(x));
    }
  });
}

TEST(AllReduceSum, TakesBuffersThatStartAnywhere) {
  in_group(3, [](Comm& comm) {
    std::vector<float> data(5000 + comm.index(), 1.0f);
    comm.all_reduce(data.data() + comm.index(), 5000, DType::fp32, ReduceOp::sum);
    EXPECT_EQ(std::accumulate(data.begin(), data.end(), 0.0), 15000.0 + comm.index());
  });
}

TEST(AllReduceSum, OfManyCallsMayBeSmallAndLargeInTurn) {
  in_group(4, [](Comm& comm) {
    std::vector<double> data(3000);
    for (int call = 0; call < 500; ++call) {
      const std::int64_t count = call % 3 == 0 ? 3000 : call % 7;
      std::fill(data.begin(), data.end(), call + comm.index());
      comm.all_reduce(data.data(), count, DType::fp64, ReduceOp::sum);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], 4 * call + 6);
      if (call % 5 == 0) comm.barrier();
    }
  });
}

TEST(AllReduceSum, RunsInAllRowsAndColumnsOfAMeshAtOnce) {
  constexpr int ranks = 8, axes = 3;  // rank = 4 x + 2 y + z, a group of two along each axis
  ThreadWorld world(ranks);
  on_ranks(ranks * axes, [&](int thread) {
    const int rank = thread / axes, bit = 1 << thread % axes;
    const std::vector<int> members = {rank & ~bit, rank | bit};
    const auto comm = world.comm(cat("axis", thread % axes), members, rank);
    EXPECT_EQ(comm->size(), 2);
    EXPECT_EQ(members[comm->index()], rank);
    for (int call = 0; call < 200; ++call) {
      std::vector<float> data(call % 2 == 0 ? 10 : 2000, static_cast<float>(rank + call));
      comm->all_reduce(data.data(), static_cast<std::int64_t>(data.size()), DType::fp32,
                       ReduceOp::sum);
      for (float x : data) ASSERT_EQ(x, members[0] + members[1] + 2 * call);
    }
  });
}

TEST(AllReduceSum, KeepsGroupsOfOneNameOrOneMemberListApart) {
  ThreadWorld world(2);
  on_ranks(4, [&](int thread) {
    const std::string name = thread < 2 ? "a" : "b";
    const auto comm = world.comm(name, {0, 1}, thread % 2);
    float x = thread < 2 ? 1.0f : 10.0f;
    comm->all_reduce(&x, 1, DType::fp32, ReduceOp::sum);
    EXPECT_EQ(x, thread < 2 ? 2.0f : 20.0f);
  });
}

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

TEST(AllReduceMismatch, OfTypesThatCannotBeReducedIsRefused) {
  in_group(1, [](Comm& comm) {
    std::int32_t x = 0;
    EXPECT_EQ(message_of([&] { comm.all_reduce(&x, 1, DType::int32, ReduceOp::sum); }),
              "all_reduce of int32 is not supported: fp32 or fp64");
  });
}

TEST(Barrier, LetsNobodyPassBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  in_group(5, [&](Comm& comm) {
    for (int round = 1; round <= 200; ++round) {
      dawdle(comm.index(), round);
      ++arrived;
      comm.barrier();
      EXPECT_GE(arrived, 5 * round);
      comm.barrier();
    }
  });
}

TEST(SendRecv, PingPongKeepsOrderAndSizes) {
  in_group(2, [](Comm& comm) {
    std::vector<int> data(4000);
    for (int round = 0; round < 500; ++round) {
      const std::int64_t bytes = (round * 37 % 4000) * 4;
      if (comm.index() == 0) {
        std::iota(data.begin(), data.end(), round);
        comm.send(data.data(), bytes, 1);
        comm.recv(data.data(), bytes, 1);
        for (int i = 0; i < bytes / 4; ++i) ASSERT_EQ(data[i], 2 * (round + i));
      } else {
        comm.recv(data.data(), bytes, 0);
        for (int i = 0; i < bytes / 4; ++i) data[i] *= 2;
        comm.send(data.data(), bytes, 0);
      }
    }
  });
}

TEST(SendRecv, ATokenGoesRoundARing) {
  constexpr int n = 5;
  in_group(n, [](Comm& comm) {
    const int next = (comm.index() + 1) % n, previous = (comm.index() + n - 1) % n;
    std::int64_t token = 0;
    for (int round = 0; round < 100; ++round) {
      if (comm.index() > 0) comm.recv(&token, sizeof token, previous);
      ++token;
      comm.send(&token, sizeof token, next);
      if (comm.index() == 0) comm.recv(&token, sizeof token, previous);
    }
    EXPECT_EQ(token, comm.index() == 0 ? 100 * n : 99 * n + comm.index() + 1);
  });
}

TEST(SendRecv, BothDirectionsOfAPairAreIndependent) {
  ThreadWorld world(2);
  const auto left = world.comm("pp", {0, 1}, 0), right = world.comm("pp", {0, 1}, 1);
  on_ranks(4, [&](int thread) {
    Comm& comm = thread % 2 == 0 ? *left : *right;
    for (int message = 0; message < 1000; ++message) {
      int value = message;
      if (thread < 2) comm.send(&value, sizeof value, 1 - comm.index());
      if (thread >= 2) comm.recv(&value, sizeof value, 1 - comm.index());
      ASSERT_EQ(value, message);
    }
  });
}

TEST(SendRecv, SizesThatDifferThrowOnBothSidesAndLeaveThePairUsable) {
  in_group(2, [](Comm& comm) {
    std::vector<char> data(64, static_cast<char>(comm.index()));
    EXPECT_EQ(message_of([&] {
                comm.index() == 0 ? comm.send(&data[0], 64, 1) : comm.recv(&data[0], 8, 0);
              }),
              "group g: send of 64 bytes on rank 0 meets a receive of 8 bytes on rank 1");
    EXPECT_EQ(data[0], comm.index());
    comm.index() == 0 ? comm.send(&data[0], 64, 1) : comm.recv(&data[0], 64, 0);
    EXPECT_EQ(data[63], 0);
  });
}

TEST(SendRecv, RefusesAPeerThatIsNotThere) {
  in_group(2, [](Comm& comm) {
    EXPECT_EQ(message_of([&] { comm.send(nullptr, 0, 2); }),
              cat("group g: member ", comm.index(), " of 2 cannot exchange with 2"));
    EXPECT_NE(message_of([&] { comm.recv(nullptr, 0, comm.index()); }), "no Error");
  });
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

TEST(ThreadWorld, LetsCommsOutliveIt) {
  auto world = std::make_unique<ThreadWorld>(2);
  const auto left = world->comm("g", {0, 1}, 0), right = world->comm("g", {0, 1}, 1);
  world.reset();
  on_ranks(2, [&](int rank) { (rank == 0 ? left : right)->barrier(); });
}

TEST(ThreadWorld, RefusesGroupsThatCannotBe) {
  EXPECT_EQ(message_of([] { ThreadWorld world(0); }), "a world wants at least one rank, not 0");
  ThreadWorld world(2);
  EXPECT_EQ(message_of([&] { world.comm("g", {0, 2}, 0); }), "group g: rank 2 is not one of 2");
  EXPECT_EQ(message_of([&] {
              world.comm("g", {0, 0}, 0);
            }),
            "group g: rank 0 is a member more than once");
  EXPECT_EQ(message_of([&] { world.comm("g", {0}, 1); }), "group g: rank 1 is not a member");
  const auto comm = world.comm("g", {0, 1}, 0);
  EXPECT_EQ(message_of([&] {
              world.comm("g", {0, 1}, 0);
            }),
            "group g: rank 0 has its Comm already");
}

}  // namespace
}  // namespace mb
