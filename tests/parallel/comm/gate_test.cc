#include "parallel/comm/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace mb {
namespace {

// Runs `body(member)` on `members` threads.
template <class Body>
void on_threads(int members, Body body) {
  std::vector<std::thread> threads;
  for (int member = 0; member < members; ++member) threads.emplace_back(body, member);
  for (std::thread& thread : threads) thread.join();
}

TEST(Word, WakesWhoeverParkedHoweverLongTheyLook) {
  for (const int looks : {0, 1, 1000}) {
    Word word;
    on_threads(4, [&](int member) {
      for (std::uint32_t round = 2; round < 400; round += 2) {
        if (member == 0) {
          std::uint32_t seen = round - 2;
          EXPECT_TRUE(word.change(seen, round));
          word.wake();
        }
        EXPECT_GE(word.await(looks, [&](std::uint32_t value) { return value >= round; }), round);
      }
    });
  }
}

TEST(Word, ChangesOnlyFromWhatWasSeen) {
  Word word;
  std::uint32_t seen = 4;
  EXPECT_FALSE(word.change(seen, 6));
  EXPECT_EQ(seen, 0u);
  EXPECT_TRUE(word.change(seen, 6));
  EXPECT_EQ(word.load(), 6u);
}

TEST(Gate, LetsNobodyPassBeforeAllHaveCome) {
  constexpr int members = 5;
  Gate gate;
  std::atomic<int> arrived{0};
  on_threads(members, [&](int) {
    std::uint32_t target = 0;
    for (int round = 1; round <= 500; ++round) {
      ++arrived;
      EXPECT_TRUE(gate.pass(target, members, round % 2 == 0 ? 0 : 50));
      EXPECT_GE(arrived, members * round);
    }
  });
}

// Members meet until an abort; all of them have passed the same number of meetings.
TEST(Gate, AbortsAMeetingForAllOrForNobody) {
  constexpr int members = 4;
  for (int repeat = 0; repeat < 100; ++repeat) {
    Gate gate;
    std::atomic<int> passed[members] = {};
    on_threads(members + 1, [&](int member) {
      if (member == members) {
        while (passed[0] < repeat % 7) std::this_thread::yield();
        return gate.abort();
      }
      std::uint32_t target = 0;
      while (gate.pass(target, members, 20)) ++passed[member];
    });
    for (int member = 1; member < members; ++member) EXPECT_EQ(passed[member], passed[0]);
  }
}

}  // namespace
}  // namespace mb
