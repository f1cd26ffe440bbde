#include "bench/analysis/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/bench/synthetic.h"

namespace mb {
namespace {

CountedTraffic as_planned(const Plan& plan) {
  CountedTraffic counted;
  for (int rank = 0; rank < plan.mesh.world(); ++rank)
    counted.push_back(planned_traffic(plan, plan.mesh.coordinate(rank, Axis::pp)));
  return counted;
}

struct Fixture {
  explicit Fixture(StepShape s = small_shape("dp2.pp2.tp2", "1f1b", 3)) : shape(std::move(s)) {}
  StepShape shape;
  Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  CountedTraffic counted = as_planned(plan);
  std::vector<TrafficRow> report() const { return traffic_report(plan, shape, counted); }
};

std::vector<TrafficRow> unequal(const std::vector<TrafficRow>& rows) {
  std::vector<TrafficRow> some;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
               [](const TrafficRow& row) { return !row.numbers.equal; });
  return some;
}

constexpr TrafficKey kDataGradients{group_of(Axis::dp), Site::gradients,
                                    CollectiveKind::all_reduce};

TEST(Traffic, CommunicatorsThatCountThePlanAreEqualToIt) {
  const Fixture f;
  EXPECT_TRUE(unequal(f.report()).empty());
  for (const TrafficRow& row : f.report()) EXPECT_EQ(row.numbers.counted, row.numbers.plan);
  EXPECT_EQ(by_axis(f.report()).size(), 10u);  // tp, dp, pp, embedding, world on two stages
}

TEST(Traffic, VirtualTimeCountsNothing) {
  Fixture f;
  f.counted.clear();
  for (const TrafficRow& row : f.report()) {
    EXPECT_FALSE(row.numbers.counted.has_value());
    EXPECT_TRUE(row.numbers.equal);
  }
}

TEST(Traffic, OneRankWithOneCallTooManyIsNamed) {
  Fixture f;
  ++f.counted[6].at(kDataGradients).calls;
  const auto rows = unequal(f.report());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key, kDataGradients);
  EXPECT_EQ(rows[0].rank, 6);
  EXPECT_EQ(rows[0].numbers.counted->calls, rows[0].numbers.plan.calls + 1);
}

TEST(Traffic, TrafficThatNobodyPlannedIsUnequal) {
  Fixture f;
  const TrafficKey key{group_of(Axis::ep), Site::layer_forward, CollectiveKind::all_to_all};
  f.counted[0][key] = {1, 10, 40};
  const auto rows = unequal(f.report());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key, key);
  EXPECT_EQ(rows[0].numbers.plan, CommCount{});
}

TEST(Traffic, PlanThatReducesLessThanTheClosedFormIsUnequal) {
  Fixture f;
  f.shape.options.micro_batches = 4;
  EXPECT_FALSE(unequal(f.report()).empty());
  for (const AxisTraffic& axis : by_axis(f.report()))
    EXPECT_EQ(axis.numbers.equal, axis.numbers.closed_form == axis.numbers.plan);
}

// Which rank sends how much follows the tokens; how much they send together does not.
TEST(Traffic, TokensOfAnAllToAllAreComparedOverAllRanks) {
  StepShape shape = small_shape("ep2", "1f1b", 1);
  shape.model.experts = 4;
  Fixture f(shape);
  const TrafficKey key{group_of(Axis::ep), Site::layer_forward, CollectiveKind::all_to_all_v};
  f.counted[0].at(key).elements += 8, f.counted[0].at(key).bytes += 32;
  f.counted[1].at(key).elements -= 8, f.counted[1].at(key).bytes -= 32;
  EXPECT_TRUE(unequal(f.report()).empty());
  f.counted[1].at(key).bytes -= 32;
  EXPECT_EQ(unequal(f.report()).size(), 1u);
}

TEST(Traffic, ReceiveIsNoTrafficOfTheReceiver) {
  HandPlan hand("pp2");
  hand.add(0, Send{1}, Stream::pp_send);
  hand.add(1, Recv{0}, Stream::pp_recv);
  EXPECT_EQ(planned_traffic(hand.plan, 0).begin()->second.bytes, 400);
  EXPECT_TRUE(planned_traffic(hand.plan, 1).empty());
}

}  // namespace
}  // namespace mb
