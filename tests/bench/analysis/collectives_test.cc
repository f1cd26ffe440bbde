#include "bench/analysis/collectives.h"

#include <gtest/gtest.h>

#include "parallel/exec/sim_executor.h"
#include "tests/bench/synthetic.h"

namespace mb {
namespace {

TEST(Collectives, BandwidthLeavesOutWaitingForTheLastRank) {
  HandPlan hand("dp4");
  hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes = {{{0, 1100}}, {{500, 1100}}, {{1000, 1100}}, {{0, 1100}}};
  const std::vector<Timeline> steps = {timeline};
  const auto profile = profile_collectives(hand.plan, steps);
  ASSERT_EQ(profile.size(), 1u);
  const CollectiveProfile& row = profile[0];
  EXPECT_EQ(row.axis, "dp");
  EXPECT_EQ(row.kind, "all_reduce");
  EXPECT_EQ(row.group_size, 4);
  EXPECT_EQ(row.count, 1);
  EXPECT_EQ(row.bytes, 400);
  EXPECT_DOUBLE_EQ(row.transfer_s, 100e-9);
  EXPECT_DOUBLE_EQ(row.wait_s, 1000e-9);  // of 500, 1000 and 1000: the last arrival has none
  EXPECT_DOUBLE_EQ(row.wait_max_s, 1000e-9);
  EXPECT_DOUBLE_EQ(*row.algbw_bytes_per_s, 4e9);
  EXPECT_DOUBLE_EQ(*row.busbw_bytes_per_s, 6e9);  // 2 (n-1) / n = 1.5
}

TEST(Collectives, LastArrivalOfEveryOperationIsLeftOutOfTheWaits) {
  HandPlan hand("dp2");
  for (int i = 0; i < 3; ++i) hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes = {{{0, 10}, {10, 30}, {30, 50}}, {{0, 10}, {20, 30}, {40, 50}}};
  const std::vector<Timeline> steps = {timeline};
  EXPECT_DOUBLE_EQ(profile_collectives(hand.plan, steps)[0].wait_s, 10e-9);  // of 0, 10, 10
}

TEST(Collectives, AllGatherCountsTheTotalOutput) {
  HandPlan hand("dp4");
  Program& program = hand.plan.programs[0];
  program.tensors.push_back({.bytes = 1600, .elements = 400, .persistent = true});
  program.operands.push_back(1);
  hand.add(0, Collective{CollectiveKind::all_gather, ReduceOp::sum, group_of(Axis::dp)},
           Stream::dp);
  program.instructions.back().writes = {1, 1};
  const std::vector<Timeline> steps = {empty_timeline(hand.plan)};
  const auto profile = profile_collectives(hand.plan, steps);
  EXPECT_EQ(profile[0].bytes, 1600);
  EXPECT_FALSE(profile[0].algbw_bytes_per_s.has_value());  // took no time
}

TEST(Collectives, OperationsAreCountedOnceHoweverLanesAreShared) {
  const StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const Timeline shared = balanced_timeline(plan, 30, 50);
  const std::vector<Timeline> a = {shared}, b = {one_lane_a_rank(shared)};
  const auto one = profile_collectives(plan, a), all = profile_collectives(plan, b);
  ASSERT_EQ(one.size(), all.size());
  std::int64_t messages = 0, scalars = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].count, all[i].count) << one[i].axis << " " << one[i].site;
    if (one[i].axis == "pp") messages += one[i].count;
    if (one[i].axis == "world") scalars += one[i].count;
  }
  EXPECT_EQ(messages, 4 * 2 * 3);  // pipelines, directions, micro-batches
  EXPECT_EQ(scalars, 1);
}

// A simulated machine's links are found again by the fit, and no transfer beats its ceiling.
TEST(Collectives, OfVirtualTimeLieOnTheLineOfTheirLink) {
  StepShape shape = small_shape("dp2.pp2.tp4", "1f1b", 3);
  shape.mesh.set_ranks_per_node(4);
  Machine machine = find_machine("h100x8");
  machine.curves = "none";  // rings within a node
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const std::vector<Timeline> steps = {simulate(plan, *make_roofline_cost(plan, machine))};
  const LinkModel model{.algorithm = Algorithm::ring,
                        .links = LinkShape{.intra = machine.intra, .inter = machine.inter}};
  const auto profiles = profile_collectives(plan, steps, 0, model);
  for (const CollectiveProfile& p : profiles) {
    if (p.axis == "tp") {
      EXPECT_EQ(p.link, LinkClass::intra);
      EXPECT_DOUBLE_EQ(*p.ceiling_bytes_per_s, 450e9);
    }
    if (p.axis == "dp" || p.axis == "pp") {
      EXPECT_EQ(p.link, LinkClass::inter);
      EXPECT_DOUBLE_EQ(*p.ceiling_bytes_per_s, 50e9);
    }
    EXPECT_EQ(p.algorithm.has_value(), p.kind != "send_recv");
    EXPECT_LE(p.ceiling_fraction().value_or(0), 1) << p.axis << ' ' << p.site;
  }
  int lines = 0;
  for (const auto& [link, fit] : fit_links(profiles)) {
    if (!fit.bytes_per_s || link != LinkClass::intra) continue;  // protocols change between nodes
    EXPECT_NEAR(*fit.latency_s, machine.intra.latency_us * 1e-6, 1e-9)
        << "times are whole nanoseconds";
    EXPECT_LT(fit.error, 1e-3);
    ++lines;
  }
  EXPECT_EQ(lines, 1);
}

// Messages between stages as shifts over the pipeline, all else by kind and group.
TEST(Collectives, StandBesideWhatALargeOneOfTheirKindReachedOnTheSameGroups) {
  const StepShape shape = small_shape("dp2.pp2.tp4", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const std::vector<Timeline> steps = {
      simulate(plan, *make_roofline_cost(plan, find_machine("h100x8")))};
  constexpr int kAllReduce = static_cast<int>(CollectiveKind::all_reduce);
  const LinkModel model{.algorithm = std::nullopt,
                        .measured = {{{kAllReduce, group_of(Axis::tp)}, 400e9},
                                     {{kSendRecv, group_of(Axis::pp)}, 40e9}}};
  for (const CollectiveProfile& p : profile_collectives(plan, steps, 0, model)) {
    const double expected = p.axis == "tp" && p.kind == "all_reduce" ? 400e9
                            : p.kind == "send_recv"                  ? 40e9
                                                                     : 0;
    EXPECT_EQ(p.measured_bytes_per_s.value_or(0), expected) << p.axis << ' ' << p.kind;
    EXPECT_EQ(p.measured_fraction().has_value(), expected > 0);
    if (expected > 0) {
      EXPECT_DOUBLE_EQ(*p.measured_fraction(), *p.busbw_bytes_per_s / expected);
    }
    EXPECT_FALSE(p.algorithm) << "the library's own choice";
  }
}

TEST(Collectives, WithoutKnownLinksSayWhy) {
  HandPlan hand("dp4");
  hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  const std::vector<Timeline> steps = {empty_timeline(hand.plan)};
  const auto profile = profile_collectives(hand.plan, steps);
  EXPECT_FALSE(profile[0].ceiling_bytes_per_s);
  EXPECT_NE(profile[0].no_ceiling.find("memory"), std::string::npos);
  EXPECT_EQ(profile[0].steps, 6);
  EXPECT_DOUBLE_EQ(profile[0].link_bytes, 600);
}

TEST(Collectives, OverALinkThatANodeSharesHaveTheNodesCeiling) {
  HandPlan hand("dp4");
  hand.plan.mesh.set_ranks_per_node(2);
  hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  const std::vector<Timeline> steps = {empty_timeline(hand.plan)};
  LinkModel model{.links = parse_link_shape("intra:8GB/s,0us;inter:1GB/s/node,0us", "link")};
  const auto profile = profile_collectives(hand.plan, steps, 0, model);
  EXPECT_EQ(profile[0].link, LinkClass::mixed);
  EXPECT_DOUBLE_EQ(*profile[0].ceiling_bytes_per_s, 1e9) << "one member of a node sends to others";
}

TEST(Collectives, SitesLoseTheirNumbers) {
  EXPECT_EQ(site_family("bucket 13"), "bucket");
  EXPECT_EQ(site_family("layers.3.mlp"), "layers.*.mlp");
  EXPECT_EQ(site_family("norm1"), "norm1");
  EXPECT_EQ(site_family("mlp.up"), "mlp.up");
}

}  // namespace
}  // namespace mb
