// What every Comm promises, on threads, and under mpirun on its ranks.
#include "tests/support/comm_contract.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "parallel/comm/comm.h"
#include "parallel/mesh/mesh.h"
#include "tests/support/error.h"
#include "tests/support/launched.h"
#include "tests/support/rank_threads.h"

namespace mb {
namespace {

using test::exercise;
using test::first_ranks;
using test::launched;

// Runs `body(world, rank)` on every rank of a world of at least `n`: all of it here where it is
// threads, this process's rank where it is MPI.
void in_world(int n, const std::function<void(World&, int)>& body) {
  if (MpiWorld* world = launched()) {
    if (world->size() < n) GTEST_SKIP() << n << " ranks wanted";
    return body(*world, world->rank());
  }
  ThreadWorld world(n);
  EXPECT_EQ(test::on_ranks(world, [&](int rank) { body(world, rank); }), "");
}

// Runs `body(comm)` on the members of a group of the first `n` ranks.
void in_group(int n, const std::function<void(Comm&)>& body) {
  in_world(n, [&](World& world, int rank) {
    if (rank < n) body(*world.comm("g", first_ranks(n), rank));
  });
}

class EveryKind : public testing::TestWithParam<int> {};

// Below, around and above the size up to which small data goes another way (2 KiB).
TEST_P(EveryKind, HasTheBitsOfASerialOneWhateverTypeReductionAndSize) {
  in_group(GetParam(), [](Comm& comm) {
    int salt = 0;
    for (const int count : {0, 1, 7, 256, 513, 2049, 5001}) exercise(comm, count, salt += 100);
  });
}
INSTANTIATE_TEST_SUITE_P(Members, EveryKind, testing::Values(1, 2, 3, 4, 5, 8));

TEST(NativeComm, HasTheResultsOfASerialOneWhereOrderDoesNotMatter) {
  const int n = launched() ? launched()->size() : 3;
  in_world(n, [&](World& world, int rank) {
    const auto comm = world.native_comm("native", first_ranks(n), rank);
    int salt = 0;
    for (const int count : {0, 1, 7, 513, 1402, 5001})
      exercise(*comm, count, salt += 100, test::Numbers::whole);
  });
}

// Enough elements for a library's vector kernels.
TEST(NativeComm, WrapsSumsOfBytes) {
  in_world(2, [](World& world, int rank) {
    if (rank > 1) return;
    const auto comm = world.native_comm("native", first_ranks(2), rank);
    const std::vector<std::uint8_t> from(5000, 144);
    std::vector<std::uint8_t> to(from.size());
    for (const DType type : {DType::uint8, DType::int8}) {
      comm->all_reduce(from.data(), to.data(), static_cast<std::int64_t>(to.size()), type,
                       ReduceOp::sum);
      EXPECT_EQ(to, std::vector<std::uint8_t>(to.size(), 2 * 144 - 256));
    }
  });
}

TEST(EveryKindOfAllGroups, RunsInRowsColumnsAndPartsOfAMesh) {
  const Mesh mesh = Mesh::parse("dp2.tp4");
  Group pairs = group_of(Axis::tp);
  pairs.part = 2;
  in_world(mesh.world(), [&](World& world, int rank) {
    if (rank >= mesh.world()) return;
    const auto pair = world.comm("pair", mesh.members(pairs, rank), rank);
    const auto row = world.comm("tp", mesh.members(group_of(Axis::tp), rank), rank);
    const auto column = world.comm("dp", mesh.members(group_of(Axis::dp), rank), rank);
    EXPECT_EQ(pair->index(), mesh.index_in(pairs, rank));
    for (const int count : {4, 1500}) {
      exercise(*pair, count, rank / 2);
      exercise(*row, count, rank / 4);
      exercise(*column, count, rank % 4);
    }
  });
}

TEST(EveryKindOfAllGroups, LetsBuffersBeUsedAgainAtOnce) {
  for (const int count : {5, 2000})
    in_group(launched() ? launched()->size() : 4,
             [&](Comm& comm) { test::reuse_buffers(comm, count); });
}

TEST(Carried, CountsTheFullVector) {
  using Kind = std::function<void(Comm&, float*, float*)>;
  constexpr DType type = DType::fp32;
  const int n = launched() ? launched()->size() : 3;
  const auto carried = [&](const Kind& call) {
    std::array<std::int64_t, 3> count{1, 0, 0};
    in_group(n, [&](Comm& comm) {
      std::vector<float> a(10 * n), b(10 * n);
      call(comm, a.data(), b.data());
      const CommCount all = comm.carried();
      if (comm.index() == 0 || launched()) count = {all.calls, all.elements, all.bytes};
    });
    return count;
  };
  const std::array<std::int64_t, 3> whole = {1, 10 * n, 40 * n}, one = {1, 10, 40};
  EXPECT_EQ(carried([](Comm& c, float* a, float*) { c.all_reduce(a, 10, type, {}); }), one);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.reduce(a, b, 10, type, {}, 0); }), one);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.all_gather(a, b, 10, type); }), whole);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.reduce_scatter(a, b, 10, type, {}); }),
            whole);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.all_to_all(a, b, 10, type); }), whole);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.shift(a, b, 10, type); }), one);
  EXPECT_EQ(carried([](Comm& c, float* a, float*) { c.broadcast(a, 10, type, 0); }), one);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.gather(a, b, 10, type, 0); }), whole);
  EXPECT_EQ(carried([](Comm& c, float* a, float* b) { c.scatter(a, b, 10, type, 0); }), whole);
}

// What the members of a group of `n` are told, on every one of them.
void expect_told(int n, const std::string& message, const std::function<void(Comm&)>& call) {
  in_group(n, [&](Comm& comm) {
    EXPECT_EQ(message_of([&] { call(comm); }), "group g: " + message);
    std::int32_t one = 1;  // the group can still be used
    comm.all_reduce(&one, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(one, n);
  });
}

TEST(DifferentCalls, AreToldToEveryMemberWithWhatTwoOfThemCalled) {
  const auto fp32 = DType::fp32;
  const auto a = [](Comm& c) {
    static std::array<std::vector<double>, 2> buffers{std::vector<double>(6000),
                                                      std::vector<double>(6000)};
    return buffers[c.index()].data();
  };
  const auto b = a;
  expect_told(2, "all_gather of 4 fp32 each on rank 0 meets shift of 4 fp32 on rank 1",
              [&](Comm& c) {
                c.index() == 1 ? c.shift(a(c), b(c) + 3000, 4, fp32)
                               : c.all_gather(a(c), b(c) + 3000, 4, fp32);
              });
  expect_told(2, "all_gather of 4 fp32 each on rank 0 meets all_gather of 1500 fp32 each on rank 1",
              [&](Comm& c) { c.all_gather(a(c), b(c) + 3000, c.index() == 1 ? 1500 : 4, fp32); });
  expect_told(2,
              "all_reduce of 5000 fp32 sum on rank 0 meets all_reduce of 5000 fp32 max on rank 1",
              [&](Comm& c) {
                c.all_reduce(a(c), 5000, fp32, c.index() == 1 ? ReduceOp::max : ReduceOp::sum);
              });
  expect_told(2, "barrier on rank 0 meets all_reduce of 1 fp32 sum on rank 1", [&](Comm& c) {
    if (c.index() == 0) return c.barrier();
    c.all_reduce(a(c), 1, fp32, ReduceOp::sum);
  });
  expect_told(2,
              "broadcast of 4 fp32 from member 0 on rank 0 meets broadcast of 4 fp32 from member "
              "1 on rank 1",
              [&](Comm& c) { c.broadcast(a(c), 4, fp32, c.index()); });
}

TEST(DifferentCalls, OfOnePartOfAnAllToAllVAreToldToItsTwoMembers) {
  for (const std::int64_t part : {3, 3000}) {
    in_group(3, [&](Comm& comm) {
      std::vector<float> a(9 * part, 1.0f), b(9 * part + 1, 2.0f);
      std::vector<std::int64_t> sent(3, part), wanted(3, part);
      if (comm.index() == 2) ++wanted[1];
      EXPECT_EQ(
          message_of([&] { comm.all_to_all_v(a.data(), sent, b.data(), wanted, DType::fp32); }),
          comm.index() == 0 ? "no Error"
                            : cat("group g: all_to_all_v sends ", part,
                                  " elements from rank 1 to rank 2, which wants ", part + 1));
    });
  }
}

TEST(Arguments, ThatDoNotFitTheGroupAreRefused) {
  in_group(1, [](Comm& comm) {
    float x = 0;
    const std::vector<std::int64_t> one = {1}, two = {1, 1}, negative = {-1};
    EXPECT_EQ(message_of([&] { comm.all_gather(&x, &x, -1, DType::fp32); }),
              "all_gather wants a count of 0 or more, not -1");
    EXPECT_EQ(message_of([&] { comm.broadcast(&x, 1, DType::fp32, 1); }),
              "group g: broadcast from member 1 of 1");
    EXPECT_EQ(message_of([&] { comm.reduce(&x, &x, 1, DType::fp32, ReduceOp::sum, -1); }),
              "group g: reduce to member -1 of 1");
    EXPECT_EQ(message_of([&] { comm.gather(&x, &x, 1, DType::fp32, 2); }),
              "group g: gather to member 2 of 1");
    EXPECT_EQ(message_of([&] { comm.scatter(&x, &x, 1, DType::fp32, 1); }),
              "group g: scatter from member 1 of 1");
    EXPECT_EQ(message_of([&] { comm.scatter(&x, &x, -2, DType::fp32, 0); }),
              "scatter wants a count of 0 or more, not -2");
    EXPECT_EQ(message_of([&] { comm.all_to_all_v(&x, one, &x, two, DType::fp32); }),
              "group g: all_to_all_v has 2 counts to receive, one for each of 1 members wanted");
    EXPECT_EQ(message_of([&] { comm.all_to_all_v(&x, negative, &x, one, DType::fp32); }),
              "all_to_all_v wants a count of 0 or more, not -1");
  });
}

TEST(Groups, OfRanksThatThereAreNotAreRefused) {
  in_world(1, [](World& world, int rank) {
    if (rank != 0) return;
    EXPECT_EQ(message_of([&] {
                world.comm("far", {0, 100}, 0);
              }),
              cat("group far: rank 100 is not one of ", world.size()));
    EXPECT_EQ(message_of([&] {
                world.comm("twice", {0, 0}, 0);
              }),
              "group twice: rank 0 is a member more than once");
  });
}

TEST(Messages, KeepOrderAndSizesInPingPong) {
  in_group(2, [](Comm& comm) { test::ping_pong(comm, 200); });
}

TEST(Messages, OfBothDirectionsAtOnceGoRoundARing) {
  for (const int n : {1, 2, 3}) {
    in_group(n, [&](Comm& comm) {
      const int me = comm.index(), next = (me + 1) % n, previous = (me + n - 1) % n;
      for (const std::int64_t count : {1, 500, 5000}) {
        std::vector<std::int64_t> own(count, me), other(count, -1);
        comm.send_recv(own.data(), 8 * count, next, other.data(), 8 * count, previous);
        EXPECT_EQ(other, std::vector<std::int64_t>(count, previous));
      }
    });
  }
}

// Streams send and receive at the same time by one Comm.
TEST(Messages, OfBothDirectionsOfAPairAreIndependent) {
  in_group(2, [](Comm& comm) {
    std::thread sender([&] {
      for (int message = 0; message < 300; ++message) {
        std::vector<int> data(message % 2 ? 1 : 3000, message);
        comm.send(data.data(), static_cast<std::int64_t>(4 * data.size()), 1 - comm.index());
      }
    });
    for (int message = 0; message < 300; ++message) {
      std::vector<int> data(message % 2 ? 1 : 3000);
      comm.recv(data.data(), static_cast<std::int64_t>(4 * data.size()), 1 - comm.index());
      EXPECT_EQ(data.back(), message);
    }
    sender.join();
  });
}

TEST(Messages, OfSizesThatDifferThrowOnBothSidesAndLeaveThePairUsable) {
  in_group(2, [](Comm& comm) {
    std::vector<char> data(8000, static_cast<char>(comm.index()));
    for (const auto& [sent, wanted] : {std::pair{64, 8}, {8000, 64}, {64, 8000}}) {
      EXPECT_EQ(message_of([&] {
                  comm.index() == 0 ? comm.send(&data[0], sent, 1) : comm.recv(&data[0], wanted, 0);
                }),
                cat("group g: send of ", sent, " bytes on rank 0 meets a receive of ", wanted,
                    " bytes on rank 1"));
      EXPECT_EQ(data[0], comm.index());
    }
    comm.index() == 0 ? comm.send(&data[0], 64, 1) : comm.recv(&data[0], 64, 0);
    EXPECT_EQ(data[63], 0);
  });
}

TEST(Messages, ToAPeerThatIsNotThereAreRefused) {
  in_group(2, [](Comm& comm) {
    EXPECT_EQ(message_of([&] { comm.send(nullptr, 0, 2); }),
              cat("group g: member ", comm.index(), " of 2 cannot exchange with 2"));
    EXPECT_NE(message_of([&] { comm.recv(nullptr, 0, comm.index()); }), "no Error");
  });
}

// Where all share a kernel, the clock of rank 0 is the clock that all read.
TEST(Clocks, AlignedByMessagesAgreeWithinTheirUncertainty) {
  in_world(2, [](World& world, int) {
    for (int again = 0; again < 3 && launched(); ++again) {
      world.align_clocks();
      const std::int64_t now =
          std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
      EXPECT_LE(std::abs(world.common_ns(now) - now), world.clock_uncertainty_ns());
      EXPECT_LT(world.clock_uncertainty_ns(), 1'000'000'000);
    }
  });
}

}  // namespace
}  // namespace mb
