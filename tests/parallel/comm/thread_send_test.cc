#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "parallel/comm/comm.h"
#include "tests/parallel/comm/thread_fixture.h"
#include "tests/support/comm_contract.h"
#include "tests/support/error.h"

namespace mb {
namespace {

using namespace test;

TEST(SendRecv, PingPongKeepsOrderAndSizes) {
  in_group(2, [](Comm& comm) { ping_pong(comm, 500); });
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

TEST(SendRecv, BothWaysOfNeighboursMayAllSendFirst) {
  constexpr int n = 5;
  in_group(n, [](Comm& comm) {
    const int me = comm.index(), next = (me + 1) % n, previous = (me + n - 1) % n;
    std::vector<int> out(3000), in(3000);
    for (int round = 0; round < 200; ++round) {
      const std::int64_t count = round % 2 == 0 ? 3000 : 1;
      std::fill(out.begin(), out.end(), 10 * round + me);
      comm.send_recv(out.data(), 4 * count, next, in.data(), 4 * count, previous);
      ASSERT_EQ(in[count - 1], 10 * round + previous);
    }
  });
}

TEST(SendRecv, BothWaysOfAPairAndWithinAMember) {
  in_group(2, [](Comm& comm) {
    const int me = comm.index(), peer = 1 - me;
    for (int round = 0; round < 100; ++round) {
      int out = 2 * round + me, in = -1;
      comm.send_recv(&out, sizeof out, peer, &in, sizeof in, peer);
      ASSERT_EQ(in, 2 * round + peer);
      comm.send_recv(&out, sizeof out, me, &in, sizeof in, me);
      ASSERT_EQ(in, out);
    }
  });
}

TEST(SendRecv, BothWaysMayDifferInSize) {
  in_group(2, [](Comm& comm) {
    const int me = comm.index();
    std::vector<char> out(1000, static_cast<char>(me)), in(1000, 7);
    comm.send_recv(out.data(), me == 0 ? 1000 : 0, 1 - me, in.data(), me == 0 ? 0 : 1000, 1 - me);
    EXPECT_EQ(in[999], me == 0 ? 7 : 0);
  });
}

TEST(SendRecv, BothWaysOfSizesThatDoNotMatchAreAnError) {
  in_group(2, [](Comm& comm) {
    char out[8] = {}, in[8] = {};
    const int me = comm.index();
    EXPECT_EQ(message_of([&] { comm.send_recv(out, 8, me, in, 4, me); }),
              cat("group g: send of 8 bytes on rank ", me, " meets its own receive of 4 bytes"));
    EXPECT_EQ(message_of([&] { comm.send_recv(out, 8, 2, in, 8, 1 - me); }),
              cat("group g: member ", me, " of 2 cannot exchange with 2"));
    EXPECT_EQ(message_of([&] { comm.send_recv(out, 8, 1 - me, in, 4, 1 - me); }),
              cat("group g: send of 8 bytes on rank ", 1 - me,
                  " meets a receive of 4 bytes on rank ", me));
  });
}

}  // namespace
}  // namespace mb
