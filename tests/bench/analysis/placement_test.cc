#include "bench/analysis/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/strategy/step.h"

namespace mb {
namespace {

Mesh on_nodes_of(const std::string& text, int ranks_per_node) {
  Mesh mesh = Mesh::parse(text);
  mesh.set_ranks_per_node(ranks_per_node);
  return mesh;
}

std::vector<std::vector<std::string>> orders_of(const Mesh& mesh) {
  std::vector<std::vector<std::string>> orders;
  for (const OrderClass& c : distinct_orders(mesh)) orders.push_back(c.orders);
  return orders;
}

TEST(DistinctOrders, AreJoinedWhereNodesHoldTheSameRanks) {
  using Lists = std::vector<std::vector<std::string>>;
  EXPECT_EQ(
      orders_of(on_nodes_of("dp2.pp4.tp8", 8)),
      (Lists{{"dp,pp,tp", "pp,dp,tp"}, {"dp,tp,pp"}, {"pp,tp,dp"}, {"tp,dp,pp", "tp,pp,dp"}}));
  EXPECT_EQ(orders_of(on_nodes_of("dp2.tp2", 2)), (Lists{{"dp,tp"}, {"tp,dp"}}));
  EXPECT_EQ(orders_of(on_nodes_of("dp2.tp2", 4)), (Lists{{"dp,tp", "tp,dp"}})) << "one node";
  EXPECT_EQ(orders_of(on_nodes_of("dp2.tp2", 1)), (Lists{{"dp,tp", "tp,dp"}})) << "a node each";
  EXPECT_EQ(orders_of(on_nodes_of("1", 8)), (Lists{{""}}));
}

Machine round_machine() {
  Machine machine = find_machine("h100x8");
  machine.intra = {.latency_us = 1, .gb_per_s = 400};
  machine.inter = {.latency_us = 10, .gb_per_s = 50};
  machine.nic_efficiency = 1;
  machine.curves = "none";
  return machine;
}

std::vector<AxisPlacement> placed(const std::string& order, int ranks_per_node) {
  Mesh mesh = on_nodes_of("dp2.pp2.tp2", ranks_per_node);
  mesh.set_order(order);
  StepOptions options{.micro_batches = 2};
  options.bucket_bytes = std::int64_t{1} << 40;
  const Plan plan = plan_step(find_model("gpt-1m"), mesh, options);
  return place_axes(plan, *make_roofline_cost(plan, round_machine()));
}

const AxisPlacement& axis(const std::vector<AxisPlacement>& axes, const std::string& name) {
  return *std::find_if(axes.begin(), axes.end(),
                       [&](const AxisPlacement& a) { return a.axis == name; });
}

TEST(PlaceAxes, TellsWhichAxisCrossesNodes) {
  const auto tp_first = placed("tp,dp,pp", 2), pp_first = placed("pp,dp,tp", 2);
  EXPECT_EQ(axis(tp_first, "tp").link, LinkClass::intra);
  EXPECT_EQ(axis(tp_first, "tp").crossing, 0);
  EXPECT_EQ(axis(tp_first, "tp").groups, 4);
  EXPECT_EQ(axis(tp_first, "dp").link, LinkClass::inter);
  EXPECT_EQ(axis(tp_first, "pp").crossing, 4) << "pairs of ranks";
  EXPECT_EQ(axis(pp_first, "pp").crossing, 0);
  EXPECT_EQ(axis(pp_first, "tp").crossing, 4);
  EXPECT_EQ(axis(tp_first, "world").link, LinkClass::mixed);
}

TEST(PlaceAxes, CountsEveryByteOnceWhateverTheOrder) {
  const auto a = placed("tp,dp,pp", 2), b = placed("pp,dp,tp", 2), one = placed("tp,dp,pp", 8);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_DOUBLE_EQ(a[i].intra_bytes + a[i].inter_bytes, b[i].intra_bytes + b[i].inter_bytes)
        << a[i].axis;
    EXPECT_EQ(one[i].inter_bytes, 0);
    EXPECT_DOUBLE_EQ(one[i].intra_bytes, a[i].intra_bytes + a[i].inter_bytes);
  }
  // Two micro-batches' hidden states, 64 KiB, each way, by four pipelines.
  EXPECT_DOUBLE_EQ(axis(a, "pp").inter_bytes, 4 * 2 * 2 * 65536.0);
}

// tp=8 on nodes of 8: each of its operations takes 2 (n - 1) (latency + S / n / bandwidth) there
// and between nodes alike.
// An all-reduce over eight nodes with a rank on each: under each protocol of NCCL what it takes
// before the first hop, fourteen hops of a ring or six of a tree, and the bytes of the ring.
double across_nodes(double part) {
  struct Protocol {
    double base_us, ring, tree, carried;
  };
  double best = 1e9;
  for (const Protocol& p : {Protocol{6.6, 2.7 / 14, 5.0 / 14, 0.5},
                            Protocol{14, 4.0 / 14, 8.5 / 14, 120.0 / 128}, Protocol{8.4, 1, 1, 1}})
    best = std::min(best, 1e-6 * (p.base_us + 10 * std::min(14 * p.ring, 6 * p.tree)) +
                              14 * part / 50e9 / p.carried);
  return best;
}

TEST(PlaceAxes, TensorRanksAcrossNodesTakeWhatTheClosedFormSays) {
  Mesh mesh = on_nodes_of("dp2.pp4.tp8", 8);
  StepOptions options{.micro_batches = 4};
  options.micro_batch = 4;
  const ModelConfig model = find_model("gpt-24l");
  const auto tp_seconds = [&](const std::string& order) {
    mesh.set_order(order);
    const Plan plan = plan_step(model, mesh, options);
    return axis(place_axes(plan, *make_roofline_cost(plan, round_machine())), "tp").seconds;
  };
  for (const char* order : {"tp,dp,pp", "tp,pp,dp"})
    EXPECT_EQ(tp_seconds(order), tp_seconds("tp,dp,pp"));
  double within = 0, between = 0;
  mesh.set_order("tp,dp,pp");
  const Plan plan = plan_step(model, mesh, options);
  for (const Program& program : plan.programs) {
    double own = 0, crossing = 0;
    for (const Instruction& i : program.instructions) {
      const auto* collective = std::get_if<Collective>(&i.action);
      if (!collective || collective->group != group_of(Axis::tp)) continue;
      const double part = static_cast<double>(payload_bytes(program, i)) / 8;
      own += 14 * (1e-6 + part / 400e9), crossing += across_nodes(part);
    }
    within = std::max(within, own), between = std::max(between, crossing);
  }
  EXPECT_NEAR(tp_seconds("pp,dp,tp") / tp_seconds("tp,dp,pp"), between / within,
              0.01 * between / within);
}

}  // namespace
}  // namespace mb
