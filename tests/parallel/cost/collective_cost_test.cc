#include "parallel/cost/collective_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "parallel/comm/steps.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr auto kAllReduce = CollectiveKind::all_reduce;
constexpr Link kIntra{.latency_us = 2, .gb_per_s = 400}, kInter{.latency_us = 10, .gb_per_s = 50};
constexpr double kBytes = 1'680'000;  // divides into all parts that are made here

std::vector<int> in_nodes(int nodes, int each) {
  std::vector<int> of;
  for (int k = 0; k < nodes * each; ++k) of.push_back(k / each);
  return of;
}

double seconds(CollectiveKind kind, Algorithm algorithm, const std::vector<int>& nodes) {
  return collective_seconds(kind, algorithm, static_cast<std::int64_t>(kBytes), nodes, kIntra,
                            kInter);
}

double intra(double bytes) { return 2e-6 + bytes / 400e9; }
double inter(double bytes) { return 10e-6 + bytes / 50e9; }

TEST(CollectiveSeconds, OfARingTakeTheSlowestLink) {
  EXPECT_DOUBLE_EQ(seconds(kAllReduce, Algorithm::ring, in_nodes(1, 8)), 14 * intra(kBytes / 8));
  EXPECT_DOUBLE_EQ(seconds(kAllReduce, Algorithm::ring, in_nodes(2, 4)), 14 * inter(kBytes / 8));
  EXPECT_DOUBLE_EQ(seconds(kAllReduce, Algorithm::own, in_nodes(2, 4)), 14 * inter(kBytes / 8));
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::all_gather, Algorithm::ring, in_nodes(1, 8)),
                   7 * intra(kBytes / 8));
  // A chain of 4 passes 3 chunks on.
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::broadcast, Algorithm::ring, in_nodes(1, 4)),
                   (2 + 3) * intra(kBytes / 3));
}

// Every number of chunks is tried over the link that chunks_of counts on.
TEST(ChunksOf, AreThoseThatTakeLeast) {
  const Link link{.latency_us = 1, .gb_per_s = static_cast<double>(kPipeBytes) * 1e-3};
  for (const int members : {2, 3, 8, 64}) {
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{4}, std::int64_t{1} << 20,
                                     std::int64_t{16} << 20, std::int64_t{1} << 30}) {
      const int most = 4 * chunks_of(bytes, members);
      double least = 1e30;
      for (int c = 1; c <= most; ++c) {
        const double each = 1e-6 + static_cast<double>(bytes) / c / (link.gb_per_s * 1e9);
        least = std::min(least, (members - 2 + c) * each);
      }
      const double taken = collective_seconds(CollectiveKind::broadcast, bytes, members, link);
      EXPECT_NEAR(taken, least, 0.01 * least) << bytes << " bytes over " << members;
    }
  }
}

// A chain ends, for large messages, at the rate of its links.
TEST(CollectiveSeconds, OfALargeBroadcastAreThoseOfItsBytes) {
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  for (const auto kind : {CollectiveKind::broadcast, CollectiveKind::reduce}) {
    const double taken = collective_seconds(kind, bytes, 8, {.latency_us = 3.4, .gb_per_s = 450});
    EXPECT_LT(taken, 1.25 * static_cast<double>(bytes) / 450e9);
  }
}

TEST(CollectiveSeconds, OfTwoLevelsAreThoseWithinAndBetweenNodes) {
  for (const int nodes : {2, 3}) {
    for (const int each : {2, 4, 8}) {
      const double within = (each - 1) * intra(kBytes / each);
      const double between = (nodes - 1) * inter(kBytes / each / nodes);
      EXPECT_NEAR(seconds(kAllReduce, Algorithm::two_level, in_nodes(nodes, each)),
                  2 * (within + between), 1e-12);
      EXPECT_NEAR(
          seconds(CollectiveKind::reduce_scatter, Algorithm::two_level, in_nodes(nodes, each)),
          within + between, 1e-12);
    }
  }
  EXPECT_NEAR(seconds(CollectiveKind::broadcast, Algorithm::two_level, in_nodes(4, 8)),
              2 * inter(kBytes) + 3 * intra(kBytes), 1e-12);
}

TEST(CollectiveSeconds, OfATreeAreItsDepth) {
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::broadcast, Algorithm::tree, in_nodes(1, 8)),
                   3 * intra(kBytes));
  EXPECT_DOUBLE_EQ(seconds(kAllReduce, Algorithm::tree, in_nodes(1, 6)), 6 * intra(kBytes));
  // Spans 1 and 2 within nodes of 4, span 4 between them.
  EXPECT_DOUBLE_EQ(seconds(kAllReduce, Algorithm::tree, in_nodes(2, 4)),
                   2 * (2 * intra(kBytes) + inter(kBytes)));
}

TEST(CollectiveSeconds, OfHalvingAndDoublingAreLogarithmicInLatency) {
  const double halves = intra(kBytes / 2) + intra(kBytes / 4) + intra(kBytes / 8);
  EXPECT_NEAR(seconds(kAllReduce, Algorithm::halving_doubling, in_nodes(1, 8)), 2 * halves, 1e-12);
  // Two of 6 hand theirs over first and are told last.
  EXPECT_NEAR(seconds(kAllReduce, Algorithm::halving_doubling, in_nodes(1, 6)),
              2 * (intra(kBytes) + intra(kBytes / 2) + intra(kBytes / 4)), 1e-12);
  // The halves go between nodes, once each way.
  EXPECT_NEAR(seconds(kAllReduce, Algorithm::halving_doubling, in_nodes(2, 4)),
              2 * (inter(kBytes / 2) + intra(kBytes / 4) + intra(kBytes / 8)), 1e-12);
}

TEST(CollectiveSeconds, OfOneMemberAreNone) {
  for (const auto algorithm : {Algorithm::own, Algorithm::ring, Algorithm::two_level})
    EXPECT_EQ(seconds(kAllReduce, algorithm, {0}), 0);
}

// When the last of all members is through its list, where a message takes latency + bytes /
// bandwidth from when both sides are there.
double walk(CollectiveKind kind, Algorithm algorithm, const std::vector<int>& nodes) {
  const int n = static_cast<int>(nodes.size());
  std::vector<StepList> lists;
  for (int k = 0; k < n; ++k)
    lists.push_back(
        steps_of(kind, algorithm, k, nodes, 0, chunks_of(static_cast<std::int64_t>(kBytes), n)));
  std::vector<std::size_t> at(n, 0);
  std::vector<double> ready(n, 0), end(n, 0);
  std::vector<bool> sent(n, false), received(n, false);
  const auto ends = [&](int from, int to, const Runs& runs) {
    double parts = 0;
    for (const Run& run : runs) parts += run.end - run.begin;
    const double bytes = kBytes * parts / lists[from].parts;
    const double finish =
        std::max(ready[from], ready[to]) + (nodes[from] == nodes[to] ? intra(bytes) : inter(bytes));
    end[from] = std::max(end[from], finish), end[to] = std::max(end[to], finish);
    sent[from] = received[to] = true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int k = 0; k < n; ++k) {
      if (at[k] == lists[k].steps.size()) continue;
      const Step& step = lists[k].steps[at[k]];
      if (step.to >= 0 && !sent[k] && at[step.to] < lists[step.to].steps.size() &&
          lists[step.to].steps[at[step.to]].from == k && !received[step.to]) {
        ends(k, step.to, step.sent);
        moved = true;
      }
      if ((step.to < 0 || sent[k]) && (step.from < 0 || received[k])) {
        ready[k] = end[k];
        sent[k] = received[k] = false;
        ++at[k];
        moved = true;
      }
    }
  }
  for (int k = 0; k < n; ++k) EXPECT_EQ(at[k], lists[k].steps.size()) << "a list waits for ever";
  return *std::max_element(ready.begin(), ready.end());
}

TEST(CollectiveSeconds, AreWhatTheListsTakeOnOneKindOfLink) {
  for (int n = 2; n <= 9; ++n) {
    for (int a = 0; a < kAlgorithms; ++a) {
      for (int k = 0; k < kCollectiveKinds; ++k) {
        const auto algorithm = static_cast<Algorithm>(a);
        const auto kind = static_cast<CollectiveKind>(k);
        if (!has_steps(kind, algorithm)) continue;
        SCOPED_TRACE(cat(name_of(kind), " by ", name_of(algorithm), " over ", n));
        const std::vector<int> nodes = in_nodes(1, n);
        const double formula = seconds(kind, algorithm, nodes),
                     walked = walk(kind, algorithm, nodes);
        const bool equal_parts = kind == kAllReduce || algorithm != Algorithm::halving_doubling;
        // Members that stand for two have the larger messages of a round, but not of all rounds.
        EXPECT_NEAR(walked, formula, (equal_parts || (n & (n - 1)) == 0 ? 1e-9 : 0.2) * formula);
        EXPECT_LE(walked, formula * (1 + 1e-9));
      }
    }
  }
}

TEST(CollectiveSeconds, AreWhatTheListsOfTwoLevelsTake) {
  for (const auto& nodes : {in_nodes(2, 2), in_nodes(2, 4), in_nodes(3, 2), in_nodes(3, 3)}) {
    for (const auto kind : {kAllReduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                            CollectiveKind::broadcast, CollectiveKind::reduce}) {
      const double formula = seconds(kind, Algorithm::two_level, nodes);
      EXPECT_NEAR(walk(kind, Algorithm::two_level, nodes), formula, 1e-9 * formula)
          << name_of(kind) << ' ' << nodes.size();
    }
  }
}

TEST(StepLists, NeverWaitForEachOtherOnUnevenNodes) {
  for (const auto& nodes : std::vector<std::vector<int>>{
           {0, 0, 0, 1, 1}, {0, 1, 0, 1, 0}, {4, 4, 4, 4, 4, 2}, {0, 0, 1, 1, 2, 2, 2, 2, 2}}) {
    for (int k = 0; k < kCollectiveKinds; ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      if (!has_steps(kind, Algorithm::two_level)) continue;
      EXPECT_LE(walk(kind, Algorithm::two_level, nodes),
                seconds(kind, Algorithm::two_level, nodes) * (1 + 1e-9))
          << name_of(kind) << ' ' << nodes.size();
    }
  }
}

}  // namespace
}  // namespace mb
