#include "parallel/exec/link_flows.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

TEST(LinkFlows, AloneTakesItsTime) {
  LinkFlows flows;
  const int flow = flows.start(10, 2, {{0, 1}});
  EXPECT_DOUBLE_EQ(flows.end_of(flow), 12);
  flows.start(20, 1, {{0, 1}});
  EXPECT_DOUBLE_EQ(flows.end_of(flow), 12) << "when it is long over, too";
}

TEST(LinkFlows, TwoThatShareALinkEachGetHalf) {
  LinkFlows flows;
  const int a = flows.start(0, 1, {{0, 1}}), b = flows.start(0, 1, {{0, 1}});
  EXPECT_DOUBLE_EQ(flows.end_of(a), 2);
  EXPECT_DOUBLE_EQ(flows.end_of(b), 2);
}

// Back to back, of different sizes: each has half of the link as long as both are at it.
TEST(LinkFlows, GroupsThatShareALinkEachGetHalfWhateverTheirSizes) {
  LinkFlows flows;
  double moved[2] = {};
  const double sizes[2] = {0.01, 0.07};
  int running[2] = {flows.start(0, sizes[0], {{0, 1}, {1, 1}}),
                    flows.start(0, sizes[1], {{0, 1}, {2, 1}})};
  double now = 0;
  while (now < 10) {
    now = std::min(flows.end_of(running[0]), flows.end_of(running[1]));
    for (int group : {0, 1}) {
      if (flows.end_of(running[group]) > now) continue;
      flows.forget(now, running[group]);
      moved[group] += sizes[group];
      running[group] = flows.start(now, sizes[group], {{0, 1}, {1 + group, 1}});
    }
  }
  EXPECT_NEAR(moved[0], 5, 0.05);
  EXPECT_NEAR(moved[1], 5, 0.05);
}

TEST(LinkFlows, OneThatJoinsLaterSlowsWhatIsLeft) {
  LinkFlows flows;
  const int first = flows.start(0, 1, {{0, 1}});
  const int second = flows.start(0.5, 1, {{0, 1}});
  EXPECT_DOUBLE_EQ(flows.end_of(first), 1.5) << "half alone, half at half speed";
  EXPECT_DOUBLE_EQ(flows.end_of(second), 2);
}

TEST(LinkFlows, TheSlowestLinkIsTheLimitAndLeavesTheRestToOthers) {
  LinkFlows flows;
  // a and b share link 0; c has link 1 with b, which leaves it half.
  const int a = flows.start(0, 1, {{0, 1}}), b = flows.start(0, 1, {{0, 1}, {1, 1}});
  const int c = flows.start(0, 0.5, {{1, 1}});
  EXPECT_DOUBLE_EQ(flows.end_of(c), 1);
  EXPECT_DOUBLE_EQ(flows.end_of(a), 2);
  EXPECT_DOUBLE_EQ(flows.end_of(b), 2);
}

TEST(LinkFlows, PartsOfALinkAddUpToIt) {
  LinkFlows flows;
  // A quarter and three quarters go beside each other; a second quarter does not.
  const int a = flows.start(0, 1, {{0, 0.25}}), b = flows.start(0, 1, {{0, 0.75}});
  EXPECT_DOUBLE_EQ(flows.end_of(a), 1);
  EXPECT_DOUBLE_EQ(flows.end_of(b), 1);
  const int c = flows.start(10, 1, {{0, 0.75}}), d = flows.start(10, 1, {{0, 0.75}});
  EXPECT_DOUBLE_EQ(flows.end_of(c), 11.5);
  EXPECT_DOUBLE_EQ(flows.end_of(d), 11.5);
}

TEST(LinkFlows, OfNoTimeEndsAtOnce) {
  LinkFlows flows;
  EXPECT_DOUBLE_EQ(flows.end_of(flows.start(3, 0, {})), 3);
}

}  // namespace
}  // namespace mb
