#include "bench/coll/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "workloads/base/rng.h"

namespace mb {
namespace {

// What `machine` predicts, with noise, for operations over both kinds of links.
std::vector<MeasuredPoint> measured_on(const Machine& machine, const CollConfig& config,
                                       double noise) {
  std::vector<MeasuredPoint> all;
  std::uint64_t draw = 0;
  for (const Operation operation :
       {Operation::all_reduce, Operation::all_gather, Operation::ping_pong, Operation::shift}) {
    for (const Axis axis : {Axis::tp, Axis::dp}) {
      for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 8) {
        PointResult result = predict(
            config, {.operation = operation, .group = group_of(axis), .bytes = bytes}, machine);
        for (GroupResult& group : result.groups) {
          const double factor = std::exp(noise * random_normal(1, 1, draw++));
          for (auto& ends : group.of(Series::operation).end)
            ends[0] = std::llround(static_cast<double>(ends[0]) * factor);
        }
        PointSummary summary = summarize(config, result, {});
        all.push_back({std::move(result), std::move(summary)});
      }
    }
  }
  return all;
}

CollConfig config_of(const char* mesh) {
  CollConfig config;
  config.mesh = Mesh::parse(mesh);
  config.mesh.set_ranks_per_node(4);
  return config;
}

TEST(Fit, FindsTheMachineThatMadeTheTimes) {
  Machine machine = find_machine("h100x8");
  machine.intra = {.latency_us = 7, .gb_per_s = 123};
  machine.inter = {.latency_us = 21, .gb_per_s = 12};
  const CollConfig config = config_of("dp3.tp4");
  const MachineFit exact =
      fit_machine(config, measured_on(machine, config, 0), find_machine("cpu"));
  EXPECT_NEAR(exact.machine.intra.latency_us, 7, 0.01);
  EXPECT_NEAR(exact.machine.intra.gb_per_s, 123, 0.1);
  EXPECT_NEAR(exact.machine.inter.latency_us, 21, 0.01);
  EXPECT_NEAR(exact.machine.inter.gb_per_s, 12, 0.01);
  const MachineFit noisy =
      fit_machine(config, measured_on(machine, config, 0.1), find_machine("cpu"));
  EXPECT_NEAR(noisy.machine.intra.gb_per_s, 123, 12);
  EXPECT_NEAR(noisy.machine.inter.latency_us, 21, 2);
  EXPECT_NEAR(noisy.inter.error, 0.067, 0.03);
}

TEST(Fit, WrittenMachineIsReadBackAndPredictsTheTimes) {
  const CollConfig config = config_of("dp2.tp4");
  const Machine machine = find_machine("a100x8");
  const std::vector<MeasuredPoint> all = measured_on(machine, config, 0);
  const MachineFit fit = fit_machine(config, all, find_machine("cpu"));
  const Machine read = machine_from_json(to_json(fit.machine), "fit");
  EXPECT_EQ(read, fit.machine);
  EXPECT_EQ(read.ranks_per_node, 4);
  for (const MeasuredPoint& m : all) {
    const double predicted =
        summarize(config, predict(config, m.result.point, read), {}).groups[0].completion.p50;
    EXPECT_NEAR(predicted, m.summary.groups[0].completion.p50, 2 + 1e-3 * predicted);
  }
}

TEST(Fit, LinkThatWasNotUsedKeepsWhatTheBaseHas) {
  CollConfig config;
  config.mesh = Mesh::parse("tp4");
  std::vector<MeasuredPoint> all;
  for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 8) {
    PointResult result = predict(config, {.bytes = bytes}, find_machine("h100x8"));
    PointSummary summary = summarize(config, result, {});
    all.push_back({std::move(result), std::move(summary)});
  }
  const Machine base = find_machine("cpu");
  const MachineFit fit = fit_machine(config, all, base);
  EXPECT_TRUE(fit.intra.latency_s);
  EXPECT_FALSE(fit.inter.latency_s);
  EXPECT_EQ(fit.machine.inter, base.inter);
  EXPECT_NE(to_text(fit).find("between nodes: not fitted"), std::string::npos);
}

}  // namespace
}  // namespace mb
