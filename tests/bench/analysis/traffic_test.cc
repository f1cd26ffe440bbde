#include "bench/analysis/traffic.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"

namespace mb {
namespace {

CountedTraffic as_planned(const Plan& plan) {
  CountedTraffic counted(plan.mesh.world());
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    for (const TrafficRow& row : planned_traffic(plan, plan.mesh.coordinate(rank, Axis::pp))) {
      const CommCount count{*row.plan->calls, row.plan->elements, row.plan->bytes};
      const Group group = row.axis == "tp"      ? group_of(Axis::tp)
                          : row.axis == "dp"    ? group_of(Axis::dp)
                          : row.axis == "world" ? kWorld
                                                : kEnds;
      counted[rank].push_back({group, row.axis == "pp", count});
    }
  }
  return counted;
}

struct Fixture {
  StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  Plan plan = plan_step(shape.model, shape.mesh, shape.options);
};

TEST(Traffic, CommunicatorsThatCountThePlanAreEqualToIt) {
  const Fixture f;
  const auto report = traffic_report(f.plan, f.shape, as_planned(f.plan));
  EXPECT_EQ(report.size(), 10u);  // tp, pp, dp, embedding, world on two stages
  for (const TrafficRow& row : report) {
    EXPECT_TRUE(row.equal) << row.axis;
    EXPECT_EQ(row.counted->bytes, row.plan->bytes);
  }
}

TEST(Traffic, OneRankWithOneCallTooManyIsNamed) {
  const Fixture f;
  CountedTraffic counted = as_planned(f.plan);
  for (GroupTraffic& t : counted[6])
    if (t.group == group_of(Axis::dp) && !t.point_to_point) ++t.count.calls;
  int unequal = 0;
  for (const TrafficRow& row : traffic_report(f.plan, f.shape, counted)) {
    if (row.equal) continue;
    ++unequal;
    EXPECT_EQ(row.axis, "dp");
    EXPECT_EQ(row.rank, 6);
    EXPECT_EQ(*row.counted->calls, *row.plan->calls + 1);
  }
  EXPECT_EQ(unequal, 1);
}

TEST(Traffic, TrafficThatNobodyPlannedIsUnequal) {
  const Fixture f;
  CountedTraffic counted = as_planned(f.plan);
  counted[0].push_back({group_of(Axis::ep), false, {1, 10, 40}});
  bool found = false;
  for (const TrafficRow& row : traffic_report(f.plan, f.shape, counted)) {
    if (row.axis != "ep") continue;
    found = true;
    EXPECT_FALSE(row.equal);
    EXPECT_FALSE(row.plan.has_value());
  }
  EXPECT_TRUE(found);
}

TEST(Traffic, ReceiveIsNoTrafficOfTheReceiver) {
  HandPlan hand("pp2");
  hand.add(0, Send{1}, Stream::pp_send);
  hand.add(1, Recv{0}, Stream::pp_recv);
  EXPECT_EQ(planned_traffic(hand.plan, 0)[0].plan->bytes, 400);
  EXPECT_TRUE(planned_traffic(hand.plan, 1).empty());
}

}  // namespace
}  // namespace mb
