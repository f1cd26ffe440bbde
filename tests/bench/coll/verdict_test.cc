#include "bench/coll/verdict.h"

#include <gtest/gtest.h>

#include "tests/bench/coll/synthetic.h"

namespace mb {
namespace {

constexpr int kRuns = 100;

// How many of 100 runs of the scene end in this verdict about these members.
int times_named(const Scene& scene, Fault fault, const std::vector<int>& who) {
  int named = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Verdict verdict = judge_group(samples_of(scene, 1000 + run), 100);
    named += verdict.fault == fault && verdict.who == who;
  }
  return named;
}

TEST(Verdict, NamesALateRank) {
  for (const int members : {2, 3, 8}) {
    EXPECT_GE(times_named({.members = members, .late = members - 1, .late_ns = 2e6},
                          Fault::late_rank, {members - 1}),
              99);
    EXPECT_GE(
        times_named({.members = members, .late = 0, .late_ns = 25'000}, Fault::late_rank, {0}), 99);
  }
}

TEST(Verdict, NamesASlowLinkByItsTwoEnds) {
  EXPECT_GE(times_named({.slow = {1, 2}, .slow_ns = 50'000}, Fault::slow_link, {1, 2}), 99);
  EXPECT_GE(times_named({.slow = {0, 7}, .slow_ns = 50'000}, Fault::slow_link, {0, 7}), 99);
  EXPECT_GE(
      times_named({.members = 4, .slow = {2, 3}, .slow_ns = 30'000}, Fault::slow_link, {2, 3}), 99);
}

TEST(Verdict, NamesASlowRank) {
  EXPECT_GE(times_named({.slow = {3}, .slow_ns = 50'000}, Fault::slow_rank, {3}), 99);
  EXPECT_GE(times_named({.members = 3, .slow = {0}, .slow_ns = 30'000}, Fault::slow_rank, {0}), 99);
}

TEST(Verdict, NamesNobodyInACleanRun) {
  for (const int members : {1, 2, 3, 8}) {
    for (const double jitter : {100.0, 2000.0, 20'000.0})
      EXPECT_GE(times_named({.members = members, .jitter_ns = jitter}, Fault::none, {}), 99);
  }
  EXPECT_GE(times_named({.transfer_ns = 500, .noise = 0.3, .jitter_ns = 800}, Fault::none, {}), 99);
}

TEST(Verdict, AnEffectTooSmallToMatterHasNoName) {
  EXPECT_GE(times_named({.late = 2, .late_ns = 5000}, Fault::none, {}), 99);
  EXPECT_GE(times_named({.transfer_ns = 1000, .jitter_ns = 10, .late = 2, .late_ns = 800},
                        Fault::none, {}),
            99);
}

// Where a member waits for a core, the others come and go before it.
TEST(Verdict, AmongCrowdedRanksOnlyLargeEffectsHaveANameOfTheirOwn) {
  for (const Scene& scene :
       {Scene{.late = 3, .late_ns = 500'000}, Scene{.slow = {3}, .slow_ns = 500'000}}) {
    EXPECT_NE(judge_group(samples_of(scene, 1), 100, false).fault, Fault::none);
    EXPECT_EQ(judge_group(samples_of(scene, 1), 100, true).fault, Fault::none);
  }
  const Verdict late = judge_group(samples_of({.late = 3, .late_ns = 2e6}, 1), 100, true);
  EXPECT_EQ(late.fault, Fault::late_rank);
  EXPECT_EQ(late.who, std::vector<int>{3});
}

TEST(Verdict, UncertainClocksNameNobody) {
  const Samples samples = samples_of({.late = 1, .late_ns = 30'000}, 1);
  EXPECT_EQ(judge_group(samples, 100).fault, Fault::late_rank);
  EXPECT_EQ(judge_group(samples, 20'000).fault, Fault::none);
}

// The late rank itself has the shortest duration, those who wait for it the longest.
TEST(Verdict, IsNotFooledByHowLongEachRankTook) {
  const Samples samples = samples_of({.members = 4, .late = 3, .late_ns = 2e6}, 1);
  std::int64_t longest = 0, late = 0;
  for (int k = 0; k < 4; ++k) {
    const std::int64_t took = samples.end[k][0] - samples.start[k][0];
    longest = std::max(longest, took);
    if (k == 3) late = took;
  }
  EXPECT_LT(late, longest / 10);
  EXPECT_EQ(judge_group(samples, 0).who, std::vector<int>{3});
}

int groups_named(int slow, double slow_ns, Fault fault, const std::vector<int>& who, int groups) {
  int named = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Distribution> completions;
    for (int g = 0; g < groups; ++g) {
      const Scene scene{.members = 4, .transfer_ns = 50'000 + (g == slow ? slow_ns : 0)};
      completions.push_back(distribution(completions_ns(samples_of(scene, 10'000 * run + g))));
    }
    const Verdict verdict = judge_groups(completions);
    named += verdict.fault == fault && verdict.who == who;
  }
  return named;
}

TEST(Verdict, NamesTheSlowGroupOfEight) {
  EXPECT_EQ(groups_named(5, 25'000, Fault::slow_group, {5}, 8), 100);
  EXPECT_EQ(groups_named(0, 25'000, Fault::slow_group, {0}, 2), 100);
  EXPECT_GE(groups_named(-1, 0, Fault::none, {}, 8), 99);
  EXPECT_GE(groups_named(3, 3000, Fault::none, {}, 8), 99);
}

TEST(Verdict, AGroupThatWaitsForCoresIsNotSlowForThat) {
  std::vector<Distribution> completions;
  for (const double transfer_ns : {50'000.0, 70'000.0})
    completions.push_back(distribution(completions_ns(
        samples_of({.members = 4, .transfer_ns = transfer_ns}, completions.size()))));
  EXPECT_EQ(judge_groups(completions).fault, Fault::slow_group);
  EXPECT_EQ(judge_groups(completions, true).fault, Fault::none);
}

TEST(Verdict, ALateRankDoesNotMakeItsGroupSlow) {
  std::vector<Distribution> completions;
  for (int g = 0; g < 4; ++g)
    completions.push_back(distribution(completions_ns(
        samples_of({.members = 4, .late = g == 2 ? 1 : -1, .late_ns = 2e6}, 7 + g))));
  EXPECT_EQ(judge_groups(completions).fault, Fault::none);
}

}  // namespace
}  // namespace mb
