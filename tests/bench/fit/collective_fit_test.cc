#include "bench/fit/collective_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/fit/coll_times.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

using enum CollectiveKind;

CollConfig config_of(const char* mesh) {
  CollConfig config;
  config.mesh = Mesh::parse(mesh);
  config.mesh.set_ranks_per_node(4);
  return config;
}

Machine machine_with(Link intra, Link inter) {
  Machine machine = find_machine("h100x8");
  machine.ranks_per_node = 4;
  machine.curves = "none";
  machine.intra = intra, machine.inter = inter;
  return machine;
}

// What `machine` predicts, with noise, for operations over both kinds of links.
std::vector<MeasuredPoint> measured_on(const Machine& machine, const CollConfig& config,
                                       double noise = 0) {
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

TEST(CollectiveFit, FindsTheMachineThatMadeTheTimes) {
  const CollConfig config = config_of("dp3.tp4");
  const Machine truth = machine_with({7, 123}, {21, 12});
  const Machine start = machine_with({1, 400}, {5, 50});
  Machine exact = start, noisy = start;
  const CollectivesFit fit =
      fit_collectives(collective_times(config, measured_on(truth, config)), exact);
  EXPECT_NEAR(exact.intra.latency_us, 7, 0.01);
  EXPECT_NEAR(exact.intra.gb_per_s, 123, 0.1);
  EXPECT_NEAR(exact.inter.latency_us, 21, 0.1);
  EXPECT_NEAR(exact.inter.gb_per_s, 12, 0.01);
  EXPECT_LT(fit.nic->held_out, 1e-3);
  const CollectivesFit with_noise =
      fit_collectives(collective_times(config, measured_on(truth, config, 0.1)), noisy);
  EXPECT_NEAR(noisy.intra.gb_per_s, 123, 12);
  EXPECT_NEAR(noisy.inter.latency_us, 21, 3);
  EXPECT_NEAR(with_noise.nic->held_out, 0.08, 0.03);
  EXPECT_GT(with_noise.nic->held_out, with_noise.nic->error);
}

TEST(CollectiveFit, WrittenMachineIsReadBackAndPredictsTheTimes) {
  const CollConfig config = config_of("dp2.tp4");
  const Machine truth = machine_with({3, 300}, {14, 25});
  const std::vector<MeasuredPoint> all = measured_on(truth, config);
  Machine machine = find_machine("h100x8");
  machine.ranks_per_node = 4;
  fit_collectives(collective_times(config, all), machine);
  const Machine read = machine_from_json(to_json(machine), "fit");
  EXPECT_EQ(read, machine);
  EXPECT_EQ(read.curves, "measured");
  for (const MeasuredPoint& m : all) {
    const double predicted =
        summarize(config, predict(config, m.result.point, read), {}).groups[0].completion.p50;
    EXPECT_NEAR(predicted, m.summary.groups[0].completion.p50, 2 + 1e-3 * predicted);
  }
}

std::vector<CollectiveTime> times_of(CollectiveKind kind, int sizes, GroupSpread spread) {
  std::vector<CollectiveTime> times;
  for (int size = 0; size < sizes; ++size) {
    const double bytes = 1024.0 * std::pow(4, size);
    times.push_back({kind, spread, bytes, 10e-6 + bytes / 100e9, "logs/a.log"});
  }
  return times;
}

TEST(CollectiveFit, KindsThatWereNotMeasuredKeepTheirCurves) {
  Machine machine = find_machine("h100x8");
  const GroupSpread node{.ranks = 8, .nodes = 1, .on_a_node = 8};
  const CollectivesFit fit = fit_collectives(times_of(all_reduce, 8, node), machine);
  EXPECT_EQ(fit.curves.size(), 1u);
  EXPECT_NEAR(group_seconds(all_reduce, 1 << 20, node, machine), 10e-6 + (1 << 20) / 100e9, 1e-9);
  EXPECT_EQ(group_seconds(all_gather, 1 << 20, node, machine),
            group_seconds(all_gather, 1 << 20, node, find_machine("h100x8")));
  EXPECT_EQ(machine.measured.sources.at("curve of all_reduce over 8 ranks on 1 nodes"),
            "8 rows of a.log");
  EXPECT_EQ(machine.measured.sources.at("other curves"), "the set h100_sxm");
}

TEST(CollectiveFit, SaysHowManyRowsItTakes) {
  Machine machine = find_machine("h100x8");
  const GroupSpread node{.ranks = 8, .nodes = 1, .on_a_node = 8};
  const auto refused = [&](std::vector<CollectiveTime> times) {
    std::string text;
    for (const std::string& why : fit_collectives(times, machine).refused) text += why + "\n";
    return text;
  };
  const std::string few = refused(times_of(all_reduce, 3, node));
  EXPECT_NE(few.find("a curve of all_reduce over 8 ranks on 1 node: 3 sizes; it takes 4"),
            std::string::npos);
  EXPECT_NE(few.find("nic_latency_us, nic_gb_per_s: 0 rows of 0 sizes between nodes; they take 6"),
            std::string::npos);
  EXPECT_EQ(machine.inter, find_machine("h100x8").inter);
}

TEST(CollectiveFit, CurvesBetweenNodesAreOfGroupsThatShareNoNics) {
  Machine machine = find_machine("h100x8");
  const GroupSpread shared{.ranks = 4, .nodes = 2, .on_a_node = 2, .groups_on_a_node = 4};
  const CollectivesFit fit = fit_collectives(times_of(all_reduce, 8, shared), machine);
  EXPECT_TRUE(fit.curves.empty());
  EXPECT_TRUE(fit.nic.has_value()) << "but its NICs are known from it";
}

}  // namespace
}  // namespace mb
