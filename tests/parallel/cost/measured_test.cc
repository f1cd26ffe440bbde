#include "parallel/cost/measured.h"

#include <gtest/gtest.h>

#include "parallel/cost/cost.h"
#include "parallel/cost/network.h"
#include "parallel/exec/predict.h"
#include "parallel/strategy/step.h"
#include "tests/support/error.h"

namespace mb {
namespace {

Machine measured_machine() {
  Machine machine = find_machine("h100x8");
  machine.curves = machine.op_times = "measured";
  machine.measured.curves = {
      {CollectiveKind::all_reduce, 8, {{1 << 20, 10, 100}, {1e18, 20, 400}}},
      {CollectiveKind::all_reduce, 16, {{1e18, 50, 25}}, 2},
  };
  machine.measured.ops = {{"matmul 128x256x512", 7}};
  machine.comm_times = "measured";
  machine.measured.comm = {{CollectiveKind::all_reduce, 16, 2, 1, 1 << 20, 90},
                           {CollectiveKind::shift, 2, 1, 1, 4096, 30}};
  machine.measured.sources = {{"nic_gb_per_s", "12 rows of all_reduce.log"}};
  return machine;
}

TEST(Measured, IsWrittenAndReadBack) {
  const Machine machine = measured_machine();
  EXPECT_EQ(machine_from_json(to_json(machine), "file"), machine);
  EXPECT_EQ(to_json(find_machine("h100x8")).find("measured_"), std::string::npos);
}

TEST(Measured, CurvesTakeThePlaceOfTheBuiltInOnes) {
  const Machine machine = measured_machine();
  const GroupSpread node{.ranks = 8, .nodes = 1, .on_a_node = 8};
  EXPECT_DOUBLE_EQ(group_seconds(CollectiveKind::all_reduce, 1 << 10, node, machine),
                   10e-6 + 1024 / 100e9);
  EXPECT_DOUBLE_EQ(group_seconds(CollectiveKind::all_reduce, 1 << 30, node, machine),
                   20e-6 + (1 << 30) / 400e9);
  const GroupSpread alone{.ranks = 16, .nodes = 2, .on_a_node = 8};
  EXPECT_DOUBLE_EQ(group_seconds(CollectiveKind::all_reduce, 1 << 30, alone, machine),
                   50e-6 + (1 << 30) / 25e9);
  GroupSpread shared = alone;
  shared.groups_on_a_node = 2;
  Machine bare = machine;
  bare.curves = "none";
  EXPECT_EQ(group_seconds(CollectiveKind::all_reduce, 1 << 30, shared, machine),
            group_seconds(CollectiveKind::all_reduce, 1 << 30, shared, bare))
      << "a group that shares NICs was not measured";
}

// A size that was measured takes what it took in steps, another what the curve says.
TEST(Measured, CommunicationOfStepsTakesThePlaceOfCurves) {
  Machine machine = measured_machine();
  Mesh mesh = Mesh::parse("dp8.pp2");
  mesh.set_ranks_per_node(8);
  machine.measured.comm.push_back({CollectiveKind::all_reduce, 8, 1, 1, 1 << 20, 70});
  machine.measured.comm.push_back({CollectiveKind::shift, 2, 2, 8, 4096, 40});
  const auto seconds = [&](std::int64_t bytes) {
    return Network(mesh, machine).seconds(CollectiveKind::all_reduce, group_of(Axis::dp), bytes);
  };
  EXPECT_DOUBLE_EQ(seconds(1 << 20), 70e-6);
  EXPECT_DOUBLE_EQ(seconds(1 << 10), 10e-6 + 1024 / 100e9);
  EXPECT_DOUBLE_EQ(Network(mesh, machine).seconds(0, 1, 4096), 40e-6)
      << "eight ranks of a node send at once";
  mesh.set_ranks_per_node(16);
  EXPECT_DOUBLE_EQ(Network(mesh, machine).seconds(0, 1, 4096), 30e-6);
  set_field(machine, "machine.nic_gb_per_s", "10");
  EXPECT_EQ(machine.comm_times, "none") << "measured on other NICs";
  EXPECT_NE(seconds(1 << 20), 70e-6);
}

TEST(Measured, TimesOfOperationsAreFoundByShape) {
  const OpTimes times(
      {{"matmul 128x256x512 nt bias", 9}, {"matmul 128x256x512 nn", 7}, {"gelu 4x8", 1}});
  EXPECT_DOUBLE_EQ(*times.seconds({Matmul{128, 256, 512, false, true, true}}), 9e-6);
  EXPECT_DOUBLE_EQ(*times.seconds({Matmul{128, 256, 512, true}}), 7e-6) << "any other layout";
  EXPECT_DOUBLE_EQ(*times.seconds({Gelu{4, 8}}), 1e-6);
  EXPECT_FALSE(times.seconds({Matmul{128, 256, 512}, DType::bf16}));
  EXPECT_FALSE(times.seconds({Gelu{4, 9}}));
}

// With every operation of the Plan measured, a step is the sum of the times that were given.
TEST(Measured, OperationsTakeTheirTimesInAPrediction) {
  const ModelConfig model = find_model("gpt-1m");
  const Plan plan = plan_step(model, Mesh(), {});
  Machine machine = find_machine("h100x8");
  machine.op_times = "measured";
  for (const Op& op : plan.ops) machine.measured.ops.push_back({to_text(op), 3});
  const Prediction all = predict(model, Mesh(), {}, machine, find_stack("kernels"));
  EXPECT_GT(all.ops.measured, 30);
  EXPECT_EQ(all.ops.modelled, 0);
  EXPECT_NEAR(all.step_s, 3e-6 * static_cast<double>(plan.programs[0].instructions.size()), 1e-9);
  machine.measured.ops = {{"gelu 128x512", 3}, {"gelu 128x513", 3}};
  const Prediction one = predict(model, Mesh(), {}, machine, find_stack("kernels"));
  EXPECT_EQ(one.ops.measured, 1);
  EXPECT_EQ(one.ops.modelled, all.ops.measured - 1) << "operations that nothing runs do not count";
}

TEST(Measured, WhatIsAskedForOfAnotherDeviceIsNotAnsweredByThisOne) {
  Machine machine = measured_machine();
  set_field(machine, "machine.bf16_tflops", "1000");
  EXPECT_EQ(machine.op_times, "none");
  EXPECT_EQ(machine.curves, "measured");
  set_field(machine, "machine.nic_gb_per_s", "100");
  EXPECT_EQ(machine.curves, "none");
  machine = find_machine("h100x8");
  set_field(machine, "machine.nic_gb_per_s", "100");
  EXPECT_EQ(machine.curves, "h100_sxm") << "curves within a node do not depend on NICs";
}

TEST(Measured, WhatIsImpossibleIsRefusedByName) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = to_json(measured_machine());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return message_of([&] { machine_from_json(text, "my.json"); });
  };
  EXPECT_NE(refused("\"all_reduce\"", "\"all_reduced\"").find("did you mean 'all_reduce'"),
            std::string::npos);
  EXPECT_NE(refused("\"gb_per_s\": 100", "\"gb_per_s\": -1").find("a rate of -1"),
            std::string::npos);
  EXPECT_NE(refused("\"us\": 7.0", "\"us\": 0").find("'matmul 128x256x512' takes 0 us"),
            std::string::npos);
  EXPECT_NE(refused("\"us\": 7.0", "\"usec\": 7").find("meshbench fit"), std::string::npos);
  EXPECT_NE(refused("\"ranks\": 8", "\"ranks\": 1").find("at least 2 ranks"), std::string::npos);
  Machine machine = find_machine("cpu");
  machine.curves = "measured";
  EXPECT_NE(message_of([&] { check_machine(machine); }).find("has no measured_curves"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
