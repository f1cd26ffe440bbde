#include "bench/coll/summary.h"

#include <gtest/gtest.h>

#include "parallel/cost/collective_cost.h"
#include "parallel/cost/network.h"
#include "tests/bench/coll/synthetic.h"

namespace mb {
namespace {

CollConfig config_of(const char* mesh, int ranks_per_node = 8) {
  CollConfig config;
  config.mesh = Mesh::parse(mesh);
  config.mesh.set_ranks_per_node(ranks_per_node);
  return config;
}

Surroundings h100() { return {.mode = "sim", .machine = find_machine("h100x8")}; }

TEST(Summary, RatesFollowFromTheMedianAndTheRealSize) {
  const CollConfig config = config_of("dp3");
  const Point point{.operation = Operation::all_gather, .bytes = 1024};
  const GroupSummary s = summarize(config, result_of(config, point, {{}}), {}).groups[0];
  EXPECT_EQ(s.bytes, 1020);
  EXPECT_DOUBLE_EQ(*s.algbw, 1020 / (1e-9 * s.completion.p50));
  EXPECT_DOUBLE_EQ(*s.busbw, *s.algbw * 2 / 3);
}

TEST(Summary, OneRankHasNoBus) {
  const CollConfig config = config_of("1");
  const GroupSummary s =
      summarize(config, result_of(config, {.bytes = 1024}, {{}}), h100()).groups[0];
  EXPECT_FALSE(s.busbw);
  EXPECT_FALSE(s.factor);
  EXPECT_FALSE(s.expected.busbw_ceiling);
  EXPECT_EQ(s.expected.link, LinkClass::none);
}

TEST(Summary, PingPongIsTimedOneWay) {
  const CollConfig config = config_of("dp2");
  const PointResult result =
      result_of(config, {.operation = Operation::ping_pong, .bytes = 1024}, {{}});
  const GroupSummary s = summarize(config, result, {}).groups[0];
  EXPECT_DOUBLE_EQ(s.completion.p50,
                   median(completions_ns(result.groups[0].of(Series::operation))) / 2);
}

TEST(Summary, PredictionIsWhatAStepsCollectivesTake) {
  const CollConfig config = config_of("dp2.tp8");
  const Machine machine = find_machine("h100x8");
  for (const Axis axis : {Axis::tp, Axis::dp}) {
    const PointResult result =
        predict(config, {.group = group_of(axis), .bytes = 64 << 20}, machine);
    const int n = config.mesh.size(axis);
    EXPECT_EQ(result.groups.size(), 16u / n);
    const PointSummary summary = summarize(config, result, h100());
    const double wanted =
        Network(config.mesh, machine).seconds(CollectiveKind::all_reduce, group_of(axis), 64 << 20);
    for (const GroupSummary& s : summary.groups) {
      EXPECT_NEAR(1e-9 * s.completion.p50, wanted, 1e-9);
      EXPECT_NEAR(*s.expected.seconds, wanted, 1e-12);
      EXPECT_LE(*s.expected.fraction, 1.0001);
    }
    EXPECT_EQ(summary.among.fault, Fault::none);
  }
}

TEST(Summary, LargeMessagesReachTheCeilingOfTheirLinks) {
  const CollConfig config = config_of("dp2.tp8");
  const Point point{.group = group_of(Axis::tp), .bytes = std::int64_t{1} << 40};
  const GroupSummary s =
      summarize(config, predict(config, point, find_machine("h100x8")), h100()).groups[0];
  EXPECT_NEAR(*s.expected.fraction, 1, 1e-2);
  EXPECT_NEAR(*s.busbw, 450e9, 2e9) << "as it was measured on 8 H100";
  EXPECT_EQ(s.expected.link, LinkClass::intra);
  EXPECT_NEAR(s.expected.wire->intra, 2.0 * 7 / 8 * static_cast<double>(point.bytes), 1);
}

TEST(Summary, GroupsThatShareNicsAreSlowerTogetherThanAlone) {
  Machine machine = find_machine("h100x8");
  machine.nics_per_node = 2;
  CollConfig config = config_of("dp2.tp8");
  for (const Algorithm algorithm : {Algorithm::own, Algorithm::ring, Algorithm::tree}) {
    const Point point{
        .group = group_of(Axis::dp), .bytes = std::int64_t{1} << 34, .algorithm = algorithm};
    const auto seconds = [&] {
      const GroupSummary s =
          summarize(config, predict(config, point, machine), {.mode = "sim", .machine = machine})
              .groups[0];
      EXPECT_NEAR(*s.expected.fraction, 1, 0.01) << name_of(algorithm);
      return s.completion.p50;
    };
    config.all_groups = true;
    const double together = seconds();
    config.all_groups = false;
    EXPECT_NEAR(together, 4 * seconds(), 0.01 * together) << name_of(algorithm);
  }
}

TEST(Summary, PairsAndBarriersArePredictedToo) {
  const CollConfig config = config_of("dp5");
  const Machine machine = find_machine("h100x8");
  const auto seconds = [&](Operation operation) {
    return 1e-9 * summarize(config,
                            predict(config, {.operation = operation, .bytes = 1 << 20}, machine),
                            h100())
                      .groups[0]
                      .completion.p50;
  };
  const double message = collective_seconds(CollectiveKind::shift, 1 << 20, 2, machine.intra);
  EXPECT_NEAR(seconds(Operation::ping_pong), message, 1e-9);
  EXPECT_NEAR(seconds(Operation::both_ways), message, 1e-9);
  EXPECT_NEAR(seconds(Operation::barrier), 3 * machine.intra.latency_us * 1e-6, 1e-9);
}

TEST(Summary, SlowGroupGetsItsVerdict) {
  const CollConfig config = config_of("dp2.tp4");
  const Point point{.group = group_of(Axis::dp), .bytes = 1 << 20};
  const PointSummary summary =
      summarize(config, result_of(config, point, {{}, {}, {.transfer_ns = 90'000}, {}}), {});
  EXPECT_EQ(summary.among.who, std::vector<int>{2});
  EXPECT_EQ(summary.groups[2].verdict.fault, Fault::slow_group);
  EXPECT_EQ(summary.groups[1].verdict.fault, Fault::none);
}

TEST(Summary, MemoryCeilingHoldsForBuffersLargerThanCaches) {
  const CollConfig config = config_of("dp2");
  const Surroundings around{.memory_bytes_per_s = 40e9};
  const auto expected = [&](std::int64_t bytes) {
    return summarize(config, result_of(config, {.bytes = bytes}, {{}}), around).groups[0].expected;
  };
  EXPECT_DOUBLE_EQ(*expected(256 << 20).busbw_ceiling, 10e9);
  EXPECT_FALSE(expected(1 << 20).busbw_ceiling);
  EXPECT_NE(expected(1 << 20).ceiling_by.find("caches"), std::string::npos);
}

TEST(Summary, OverlapIsWhatOneHidesBehindTheOther) {
  const CollConfig config = config_of("dp2");
  PointResult result = result_of(config, {.bytes = 1024, .overlap = ComputeKind::matmul}, {{}});
  const auto lasting = [](std::int64_t ns) {
    return Samples{.start = {{0}, {0}}, .end = {{ns}, {ns}}};
  };
  GroupResult& group = result.groups[0];
  group.of(Series::operation) = lasting(100);
  group.of(Series::compute) = lasting(200);
  group.of(Series::both) = lasting(250);
  group.of(Series::operation_in_both) = lasting(150);
  group.of(Series::compute_in_both) = lasting(240);
  const OverlapSummary overlap = *summarize(config, result, {}).groups[0].overlap;
  EXPECT_DOUBLE_EQ(overlap.efficiency.value(), 0.5);
  EXPECT_DOUBLE_EQ(overlap.operation_slow_down, 1.5);
  EXPECT_DOUBLE_EQ(overlap.compute_slow_down, 1.2);
  group.of(Series::compute) = lasting(201);  // more than the operation can hide behind
  EXPECT_FALSE(summarize(config, result, {}).groups[0].overlap->efficiency);
}

}  // namespace
}  // namespace mb
