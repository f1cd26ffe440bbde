#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/mesh/mesh.h"
#include "tests/parallel/comm/thread_fixture.h"
#include "tests/support/comm_contract.h"
#include "tests/support/error.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

using namespace test;

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

class EveryCollective : public testing::TestWithParam<int> {};

// Below, around and above the sizes up to which data is staged (512 bytes where ranks have cores of
// their own, else 4 KiB), for each type, and none or one for each member.
TEST_P(EveryCollective, HasTheBitsOfASerialOneWhateverTypeAndSize) {
  in_group(GetParam(), [](Comm& comm) {
    int salt = 0;
    for (const int count : {0, 1, comm.size() - 1, comm.size(), comm.size() + 1, 64, 65, 128, 257,
                            512, 513, 1025, 2049, 4097})
      exercise_pairwise(comm, count, salt += 101);
  });
}

// Large enough for streaming stores in most kinds.
TEST_P(EveryCollective, HasTheBitsOfASerialOneOfMillionsOfElements) {
  constexpr std::int64_t count = 1000003;
  in_group(GetParam(), [](Comm& comm) {
    const int n = comm.size();
    const auto op = static_cast<ReduceOp>(n % 5);
    Exercise<float>{comm, count, 2 * n, Numbers::mixed, 4}.of_whole_vectors(op);
    Exercise<Bf16>{comm, count / n, n, Numbers::mixed, 2}.of_parts(op);
    Exercise<std::uint8_t>{comm, count / n, n + 1, Numbers::mixed, 1}.of_parts(op);
  });
}

TEST_P(EveryCollective, DoesNotDependOnDelays) {
  for (const std::uint64_t seed : {1, 2}) {
    in_group(GetParam(),
             [](Comm& comm) {
               for (int repeat = 0; repeat < 2; ++repeat) {
                 exercise_pairwise(comm, 3, repeat);
                 exercise_pairwise(comm, 1025, repeat);
               }
             },
             {.seed = seed, .most_us = 60});
  }
}

INSTANTIATE_TEST_SUITE_P(Members, EveryCollective, testing::Range(1, 10));

TEST(EveryCollective, LetsBuffersBeUsedAgainAtOnce) {
  for (const int count : {5, 2000}) {
    in_group(4, [&](Comm& comm) { reuse_buffers(comm, count); }, {.seed = 5, .most_us = 30});
  }
}

TEST(EveryCollective, RunsInGroupsThatAreCutIntoParts) {
  const Mesh mesh = Mesh::parse("dp2.tp4");
  Group pairs = group_of(Axis::tp);
  pairs.part = 2;
  ThreadWorld world(mesh.world());
  on_ranks(mesh.world(), [&](int rank) {
    const auto pair = world.comm(name_of(pairs), mesh.members(pairs, rank), rank);
    const auto all = world.comm("tp", mesh.members(group_of(Axis::tp), rank), rank);
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->index(), mesh.index_in(pairs, rank));
    for (const int count : {4, 3000}) {
      exercise_pairwise(*pair, count, rank / 2);
      exercise_pairwise(*all, count, rank / 4);
    }
  });
}

TEST(EveryCollective, CountsItsFullVector) {
  using Kind = std::function<void(Comm&, float*, float*)>;
  const auto carried = [](int n, const Kind& call) {
    CommCount count;
    in_group(n, [&](Comm& comm) {
      std::vector<float> a(60), b(60);
      call(comm, a.data(), b.data());
      if (comm.index() == 0) count = comm.carried();
    });
    return std::array{count.calls, count.elements, count.bytes};
  };
  constexpr DType type = DType::fp32;
  using Count = std::array<std::int64_t, 3>;
  for (const int n : {1, 3}) {
    const Count whole = {1, 10 * n, 40 * n}, one = {1, 10, 40};
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float*) { c.all_reduce(a, 10, type, {}); }), one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.all_gather(a, b, 10, type); }), whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.reduce_scatter(a, b, 10, type, {}); }),
              whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.all_to_all(a, b, 10, type); }), whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.shift(a, b, 10, type); }), one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float*) { c.broadcast(a, 10, type, 0); }), one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.reduce(a, b, 10, type, {}, 0); }),
              one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.gather(a, b, 10, type, 0); }), whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.scatter(a, b, 10, type, 0); }), whole);
    EXPECT_EQ(carried(n,
                      [](Comm& c, float* a, float* b) {
                        const int size = c.size(), me = c.index();
                        c.send_recv(a, 40, (me + 1) % size, b, 40, (me + size - 1) % size);
                      }),
              (Count{1, 0, 40}));
  }
  EXPECT_EQ(carried(2,
                    [](Comm& c, float* a, float* b) {
                      const std::vector<std::int64_t> first = {1, 4}, second = {2, 8};
                      const std::vector<std::int64_t> from_first = {1, 2}, from_second = {4, 8};
                      c.index() == 0 ? c.all_to_all_v(a, first, b, from_first, type)
                                     : c.all_to_all_v(a, second, b, from_second, type);
                    }),
            (Count{1, 5, 20}));
}

TEST(EveryCollective, SumsOfInt32WrapAround) {
  in_group(3, [](Comm& comm) {
    std::int32_t x = std::numeric_limits<std::int32_t>::max();
    comm.all_reduce(&x, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(x, std::numeric_limits<std::int32_t>::max() - 2);  // 3 (2^31 - 1) - 2^32
  });
}

// A running sum in bf16 would stick at 256.
TEST(EveryCollective, SumsOf16BitTypesAreRoundedOnce) {
  in_group(5, [](Comm& comm) {
    Bf16 x(comm.index() == 0 ? 256.0f : 1.0f);
    comm.all_reduce(&x, 1, DType::bf16, ReduceOp::sum);
    EXPECT_EQ(static_cast<float>(x), 260.0f);
  });
}

// Many calls of many kinds by more threads than there are cores, at once in two groups.
TEST(EveryCollective, StandsEightRanksThatNeverStop) {
  constexpr int n = 8;
  ThreadWorld world(n);
  on_ranks(n, [&](int rank) {
    const auto all = world.comm("all", first_ranks(n), rank);
    const auto pair = world.comm("pair", {rank & ~1, rank | 1}, rank);
    for (int call = 0; call < 60; ++call) {
      const std::int64_t count = call % 3 == 0 ? 5 : call * 97;
      Exercise<float> of_all{*all, count, call};
      Exercise<std::int32_t> of_pair{*pair, count, call};
      of_all.of_whole_vectors(static_cast<ReduceOp>(call % 5));
      of_pair.of_whole_vectors(static_cast<ReduceOp>(call % 4));
      of_pair.of_parts(static_cast<ReduceOp>(call % 4));
      of_all.of_parts(static_cast<ReduceOp>(call % 5));
    }
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

TEST(ThreadWorld, LetsCommsOutliveIt) {
  auto world = std::make_unique<ThreadWorld>(2);
  const auto left = world->comm("g", {0, 1}, 0), right = world->comm("g", {0, 1}, 1);
  world.reset();
  on_ranks(2, [&](int rank) { (rank == 0 ? left : right)->barrier(); });
}

TEST(ThreadWorld, RefusesGroupsThatCannotBe) {
  EXPECT_EQ(message_of([] { ThreadWorld world(1, {.most_us = -1}); }),
            "delays of at most -1 us: give 0 or more");
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
