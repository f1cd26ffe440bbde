#include "parallel/cost/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/cost/collective_cost.h"
#include "parallel/strategy/step.h"

namespace mb {
namespace {

// A machine of round numbers: a matmul runs at 100 TFLOP/s, memory at 1 TB/s.
Machine round_machine() {
  Machine machine;
  machine.name = "round";
  machine.fp32_tflops = 200;
  machine.matmul_efficiency = 0.5;
  machine.memory_gb_per_s = 2000;
  machine.memory_efficiency = 0.5;
  machine.launch_us = 3;
  machine.intra = {.latency_us = 1, .gb_per_s = 100};
  machine.inter = {.latency_us = 10, .gb_per_s = 10};
  machine.host = {.latency_us = 5, .gb_per_s = 20};
  return machine;
}

Plan plan_of(const std::string& mesh, int ranks_per_node) {
  Mesh parsed = Mesh::parse(mesh);
  parsed.set_ranks_per_node(ranks_per_node);
  StepOptions options{.micro_batches = 2};
  options.bucket_bytes = std::int64_t{1} << 40;  // all gradients in one call
  return plan_step(find_model("gpt-1m"), parsed, options);
}

// Duration of the first instruction of stage 0 that `wanted` holds for.
template <class Wanted>
std::int64_t duration(const Plan& plan, Wanted wanted) {
  const auto cost = make_roofline_cost(plan, round_machine());
  for (const Instruction& i : plan.programs[0].instructions) {
    if (wanted(i)) return cost->duration_ns(plan, 0, i);
  }
  ADD_FAILURE() << "the plan has no such instruction";
  return -1;
}

std::int64_t collective(const Plan& plan, Group group) {
  return duration(plan, [&](const Instruction& i) {
    const auto* collective = std::get_if<Collective>(&i.action);
    return collective && collective->group == group;
  });
}

// An all-reduce over n ranks on as many nodes, by the protocols of NCCL: a hop between nodes takes
// 10 us under Simple, 4.0 / 14 of it under LL128, which carries 120 of 128 bytes. LL128's tree and
// all of LL take longer for the sizes here.
std::int64_t apart_ns(int n, double bytes, double gb_per_s) {
  const double wire = 2.0 * (n - 1) / n * bytes / gb_per_s, hops = 2.0 * (n - 1) * 10'000;
  return std::llround(
      std::min({hops + wire, hops * 4 / 14 + wire * 128 / 120, hops * 2.7 / 14 + wire * 2}));
}

TEST(RooflineCost, AMatmulThatComputesTakesItsFlops) {
  // [4096, 4096] x [4096, 4096]: 137.4 GFLOP at 100 TFLOP/s against 0.2 GB at 1 TB/s.
  Plan plan;
  plan.programs.resize(1);
  plan.ops = {Op{Matmul{4096, 4096, 4096, false, true, false, false}}};
  const auto cost = make_roofline_cost(plan, round_machine());
  EXPECT_EQ(cost->duration_ns(plan, 0, {.action = Compute{0}}),
            3000 + std::llround(2.0 * 4096 * 4096 * 4096 / 1e5));
}

TEST(RooflineCost, AMatmulThatMovesDataTakesItsBytes) {
  // [1, 4096] x [4096, 4096]: the weight is read once.
  Plan plan;
  plan.programs.resize(1);
  plan.ops = {Op{Matmul{1, 4096, 4096, false, true, false, false}}};
  const auto cost = make_roofline_cost(plan, round_machine());
  EXPECT_EQ(cost->duration_ns(plan, 0, {.action = Compute{0}}),
            3000 + std::llround(4.0 * (4096.0 * 4096 + 2 * 4096) / 1e3));
}

TEST(RooflineCost, RanksOfANodeReduceOverItsLinks) {
  // One micro-batch's hidden state: 128 x 128 fp32. A ring of 2 takes 2 (1 us + half / 100 GB/s).
  EXPECT_EQ(collective(plan_of("tp2", 8), group_of(Axis::tp)),
            std::llround(2 * (1000 + 65536.0 / 2 / 100)));
}

TEST(RooflineCost, RanksOfSeveralNodesReduceBetweenThem) {
  // Two of four drive a NIC each. LL128's ring: a hop between nodes and two within, both ways.
  EXPECT_EQ(
      collective(plan_of("tp4", 2), group_of(Axis::tp)),
      std::llround(2 * (10000 * 4.0 / 14 + 2 * 1000 * 1.9 / 3.4) + 1.5 * 65536 / 20 * 128 / 120));
  // tp inside of a node, dp between nodes.
  const Plan plan = plan_of("dp2.tp2", 2);
  EXPECT_EQ(collective(plan, group_of(Axis::tp)), std::llround(2 * (1000 + 65536.0 / 2 / 100)));
  const double gradients = 4.0 * static_cast<double>(plan.programs[0].buckets[0].elements);
  EXPECT_EQ(collective(plan, group_of(Axis::dp)), apart_ns(2, gradients, 10));
}

TEST(RooflineCost, TheEndsOfThePipelineAreARingOfTwo) {
  const double table = 4.0 * 256 * 128;
  EXPECT_EQ(collective(plan_of("pp4", 8), kEnds), std::llround(2 * (1000 + table / 2 / 100)));
  EXPECT_EQ(collective(plan_of("pp4", 2), kEnds), apart_ns(2, table, 10));
}

TEST(RooflineCost, AMessageTakesTheLinkBetweenItsStages) {
  const auto send = [](const Plan& plan) {
    return duration(plan,
                    [](const Instruction& i) { return std::holds_alternative<Send>(i.action); });
  };
  EXPECT_EQ(send(plan_of("pp2.tp2", 8)), std::llround(1000 + 65536.0 / 100));
  EXPECT_EQ(send(plan_of("pp2.tp2", 2)), std::llround(10000 + 65536.0 / 10));
  EXPECT_EQ(send(plan_of("pp2.tp2", 3)), std::llround(10000 + 65536.0 / 10))
      << "ranks 0 and 2 share a node, 1 and 3 do not";
}

TEST(CollectiveSeconds, FollowsTheRing) {
  const Link link{.latency_us = 2, .gb_per_s = 50};
  const auto seconds = [&](CollectiveKind kind, int ranks) {
    return collective_seconds(kind, 8'000'000, ranks, link);
  };
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::all_reduce, 8), 14 * (2e-6 + 1e6 / 50e9));
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::all_gather, 8), 7 * (2e-6 + 1e6 / 50e9));
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::reduce_scatter, 4), 3 * (2e-6 + 2e6 / 50e9));
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::all_to_all, 8), 7 * (2e-6 + 1e6 / 50e9));
  EXPECT_DOUBLE_EQ(seconds(CollectiveKind::all_to_all_v, 8), 7 * (2e-6 + 1e6 / 50e9));
  EXPECT_EQ(seconds(CollectiveKind::all_reduce, 1), 0);
}

TEST(CollectiveSeconds, OfAShiftAreThoseOfOneMessage) {
  const Link link{.latency_us = 2, .gb_per_s = 50};
  EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::shift, 8'000'000, 8, link),
                   2e-6 + 8e6 / 50e9);
  EXPECT_EQ(collective_seconds(CollectiveKind::shift, 8'000'000, 1, link), 0);
}

TEST(RooflineCost, CopiesToTheSecondMemorySpaceGoOverItsLink) {
  StepOptions options{.offload_optimizer = true};
  options.bucket_bytes = std::int64_t{1} << 40;
  const Plan plan = plan_step(find_model("gpt-1m"), Mesh::parse("1"), options);
  const double moments = 4.0 * static_cast<double>(plan.programs[0].buckets[0].elements);
  EXPECT_EQ(duration(plan, [](const Instruction& i) { return i.stream == Stream::copy; }),
            std::llround(5000 + moments / 20));
}

TEST(FixedCost, IsThatOfLayersAndHopsAlone) {
  const Plan plan = plan_of("pp2.tp2", 8);
  const auto cost = make_fixed_cost(
      {.layer_forward_ns = 3, .layer_input_ns = 4, .layer_weight_ns = 1, .hop_ns = 7});
  std::int64_t computed = 0, hops = 0, reduced = 0;
  for (const Instruction& i : plan.programs[0].instructions) {
    const std::int64_t ns = cost->duration_ns(plan, 0, i);
    if (std::holds_alternative<Compute>(i.action)) computed += ns;
    if (std::holds_alternative<Collective>(i.action)) reduced += ns;
    if (std::holds_alternative<Send>(i.action) || std::holds_alternative<Recv>(i.action))
      hops += ns;
  }
  EXPECT_EQ(computed, 2 * 2 * (3 + 5)) << "two layers of two micro-batches";
  EXPECT_EQ(hops, 4 * 7);
  EXPECT_EQ(reduced, 0);
}

}  // namespace
}  // namespace mb
