#include "bench/fit/step_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/fit/operation_fit.h"
#include "bench/fit/width.h"
#include "parallel/cost/op_cost.h"
#include "parallel/exec/predict.h"
#include "parallel/strategy/step.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

// Steps of small GPT on nodes of H100 under a stack, with noise.
std::vector<MeasuredStep> steps_of(const Stack& stack, int rows, double noise) {
  const char* meshes[] = {"1", "dp2", "tp2", "pp2", "dp2.tp2", "tp3"};
  std::vector<MeasuredStep> steps;
  for (int row = 0; row < rows; ++row) {
    MeasuredStep step{.model = find_model("gpt-10m"),
                      .mesh = Mesh::parse(meshes[row % 6]),
                      .options = {.micro_batch = std::int64_t{4} << (row / 6),
                                  .micro_batches = 2,
                                  .dtype = DType::bf16},
                      .seconds = 0,
                      .source = "runs/steps.csv"};
    step.mesh.set_ranks_per_node(8);
    step.seconds =
        predict(step.model, step.mesh, step.options, find_machine("h100x8"), stack).step_s *
        std::exp(noise * random_normal(1, 3, static_cast<std::uint64_t>(row)));
    steps.push_back(std::move(step));
  }
  return steps;
}

Stack stack_with(double compute_share, double host_us) {
  Stack stack = find_stack("kernels");
  stack.compute_share = compute_share, stack.host_us = host_us;
  return stack;
}

bool has(const std::vector<std::string>& list, const std::string& part) {
  for (const std::string& text : list)
    if (text.find(part) != std::string::npos) return true;
  return false;
}

TEST(StepFit, FindsTheHostThatMadeTheSteps) {
  Stack stack = find_stack("kernels");
  const StepsFit fit = fit_steps(steps_of(stack_with(1, 14), 6, 0), find_machine("h100x8"), stack);
  ASSERT_TRUE(fit.fit);
  EXPECT_NEAR(stack.host_us, 14, 0.2);
  EXPECT_LT(fit.fit->held_out, 0.01);
  EXPECT_NE(stack.source.find("6 steps of steps.csv"), std::string::npos);
  EXPECT_DOUBLE_EQ(stack.log_sigma, 0.02) << "six rows promise no less";
}

TEST(StepFit, TooFewStepsAreRefusedWithHowManyItTakes) {
  Stack stack = find_stack("kernels");
  const StepsFit fit = fit_steps(steps_of(stack_with(0.5, 0), 2, 0), find_machine("h100x8"), stack);
  EXPECT_FALSE(fit.fit);
  EXPECT_TRUE(has(fit.refused, "2 measured steps; one constant takes 3, two take 6 and three 9"));
  EXPECT_EQ(stack, find_stack("kernels"));
}

TEST(StepFit, AConstantThatChangesNothingIsNamed) {
  Machine machine = find_machine("h100x8");
  machine.op_times = "measured";
  auto steps = steps_of(stack_with(1, 14), 1, 0);
  steps.resize(4, steps[0]);
  for (const Op& op : plan_step(steps[0].model, steps[0].mesh, steps[0].options).ops)
    machine.measured.ops.push_back({to_text(op), 5});
  Stack stack = find_stack("kernels");
  const StepsFit fit = fit_steps(steps, machine, stack);
  EXPECT_TRUE(has(fit.refused, "compute_share: changes none of the measured steps"));
  EXPECT_TRUE(has(fit.refused, "comm_share: changes none"));
  EXPECT_EQ(fit.names, std::vector<std::string>{"host_us"});
}

TEST(OperationFit, FindsTheEfficienciesThatMadeTheMatmuls) {
  Machine truth = find_machine("h100x8");
  truth.matmul_efficiency = 0.6, truth.memory_efficiency = 0.5, truth.launch_us = 8;
  std::vector<OperationTime> times;
  for (const std::int64_t m : {128, 1024, 8192})
    for (const std::int64_t n : {256, 4096})
      for (const std::int64_t k : {64, 512, 8192}) {
        const Op op{Matmul{m, n, k}, DType::bf16};
        times.push_back({{to_text(op), 1e6 * op_seconds(op, truth, Stack{})}, "gemm.csv"});
      }
  Machine machine = find_machine("h100x8");
  const OperationsFit fit = fit_operations(times, machine);
  EXPECT_EQ(fit.operations, 18);
  EXPECT_NEAR(machine.matmul_efficiency, 0.6, 1e-3);
  EXPECT_NEAR(machine.memory_efficiency, 0.5, 1e-3);
  EXPECT_NEAR(machine.launch_us, 8, 1e-2);
  EXPECT_EQ(machine.op_times, "measured");
  EXPECT_EQ(machine.measured.sources.at("matmul_efficiency, memory_efficiency, launch_us"),
            "18 matmuls of gemm.csv");
  times.resize(5);
  Machine few = find_machine("h100x8");
  EXPECT_TRUE(has(fit_operations(times, few).refused, "5 different matmuls; they take 9"));
  EXPECT_EQ(few.measured.ops.size(), 5u) << "their own times are kept all the same";
}

TEST(OperationFit, ReadsTheTextOfAMatmul) {
  for (const Op& op : {Op{Matmul{512, 1536, 384, false, true, true}, DType::bf16},
                       Op{Matmul{1, 2, 3}, DType::fp64}, Op{Matmul{4, 5, 6, true}}}) {
    const auto read = matmul_named(to_text(op));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->dtype, op.dtype);
    EXPECT_EQ(flops(*read), flops(op));
  }
  EXPECT_FALSE(matmul_named("gelu 128x512"));
}

TEST(Width, IsOfWhatIsLeastKnown) {
  Mesh mesh = Mesh::parse("dp2.tp8");
  mesh.set_ranks_per_node(8);
  const Machine machine = find_machine("h100x8");
  const Plan plan = plan_step(find_model("gpt3-1.3b"), mesh, {.dtype = DType::bf16});
  Stack stack = find_stack("kernels");
  stack.host_us = 1;
  const auto width = width_of(plan, machine, stack, {.host = true});
  double sum = 0;
  for (const WidthPart& part : width) sum += part.share;
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_TRUE(std::is_sorted(width.begin(), width.end(),
                             [](const auto& a, const auto& b) { return a.share > b.share; }));
  KnownErrors measured{.host = true};
  measured.curves[group_name(CollectiveKind::all_reduce, 8, 1)] = 0.9;
  const auto of = [&](const std::vector<WidthPart>& parts) {
    for (const WidthPart& part : parts)
      if (part.name == "all_reduce over 8 ranks on 1 node") return part;
    return WidthPart{};
  };
  EXPECT_GT(of(width_of(plan, machine, stack, measured)).share, of(width).share);
}

}  // namespace
}  // namespace mb
