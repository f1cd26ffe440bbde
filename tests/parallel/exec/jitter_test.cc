// Steps that spread, against what probability says of the largest of many.
#include "parallel/exec/jitter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

TEST(LargestOf, HasTheExpectationOfTheLargestOfNNormalNumbers) {
  const std::pair<int, double> expected[] = {{1, 0},       {2, 0.564},    {8, 1.424},
                                             {64, 2.36},   {512, 3.04},   {1024, 3.25},
                                             {4096, 3.63}, {16384, 3.96}, {100000, 4.37}};
  for (const auto& [n, mean] : expected) EXPECT_NEAR(LargestOf(n).mean(), mean, 0.02) << n;
  EXPECT_NEAR(LargestOf(1).variance(), 1, 0.005);
  EXPECT_NEAR(LargestOf(2).variance(), 1 - 1 / M_PI, 0.005);
}

// Computation alone takes time: one operation of 100 us forward and one of 200 us backward a layer.
struct Step {
  Plan plan;
  RankClasses classes;
  StepCosts costs;
  double even_s = 0;
  explicit Step(const std::string& mesh, int micro_batches = 4, int layers = 4)
      : plan(plan_of(mesh, micro_batches, layers)),
        classes(RankClasses::by_stage(plan)),
        costs(costs_of(plan, *make_fixed_cost({100'000, 200'000}))),
        even_s(1e-9 * static_cast<double>(timeline_of(plan, classes, costs).window().end_ns)) {}

  static Plan plan_of(const std::string& mesh, int micro_batches, int layers) {
    ModelConfig model = find_model("gpt-tiny");
    model.layers = layers;
    return plan_step(model, Mesh::parse(mesh), {.micro_batches = micro_batches});
  }
  StepSpread spread(const Jitter& jitter, std::uint64_t seed = 1, int lanes = 256) const {
    return spread_of_step(plan, classes, costs, jitter, seed, lanes);
  }
  // Of the expected step over the even one.
  double more_s(const Jitter& jitter) const { return spread(jitter, 1, 1024).mean_s() - even_s; }
};

TEST(Jitter, OfNothingIsTheEvenStepInEveryLane) {
  const Step step("dp2.pp4.tp2");
  for (const double s : step.spread({}).steps_s) EXPECT_EQ(s, step.even_s);
}

TEST(Jitter, IsTheSameBySeedAndAnotherByAnother) {
  const Step step("dp2.pp2.tp2");
  const Jitter jitter{.gpu = 0.01, .op = 0.05, .stalls_per_gpu_hour = 1000, .stall_s = 0.01};
  EXPECT_EQ(step.spread(jitter).steps_s, step.spread(jitter).steps_s);
  EXPECT_NE(step.spread(jitter).steps_s, step.spread(jitter, 2).steps_s);
  EXPECT_EQ(step.spread(jitter, 1, 100).steps_s.size(), 100u);
}

// The slowest of all GPUs holds up the step: 1 % of spread is 4 % of a step of 16,384.
TEST(Jitter, OfGpusSlowsAStepByTheSlowestOfAll) {
  for (const auto& [mesh, sigmas] :
       {std::pair("dp64", 2.36), std::pair("dp1024", 3.25), std::pair("dp4096.tp4", 3.96)}) {
    const Step step(mesh);
    EXPECT_NEAR(step.more_s({.gpu = 0.01}) / step.even_s, 0.01 * sigmas, 0.0005) << mesh;
  }
}

// Tensor ranks meet in every layer, and pay for the latest of them each time.
TEST(Jitter, OfOperationsIsPaidForWhereverTensorRanksMeet) {
  const Step step("tp4", 4, 4);
  const double each_s = 16 * (100e-6 + 200e-6);
  EXPECT_NEAR(step.more_s({.op = 0.02}), 0.02 * 1.029 * each_s, 0.03 * 0.02 * 1.029 * each_s);
}

// Data ranks meet once: the noise of so many operations has averaged out by then.
TEST(Jitter, OfOperationsAveragesOutBeforeDataRanksMeet) {
  const Step step("dp64", 16, 4);
  const double sigma_s = 0.02 * std::sqrt(64 * (1e-8 + 4e-8));
  EXPECT_NEAR(step.more_s({.op = 0.02}), 2.36 * sigma_s, 0.06 * 2.36 * sigma_s);
}

TEST(Jitter, StallsComeAsOftenAsTheySay) {
  const Step step("dp8");
  const double hours = step.even_s / 3600;
  const Jitter jitter{.stalls_per_gpu_hour = 2 / (8 * hours), .stall_s = 0.25};
  EXPECT_NEAR(step.more_s(jitter), 2 * 0.25, 0.05);
}

TEST(Jitter, QuantilesLieBetweenTheDraws) {
  const StepSpread spread{.steps_s = {1, 2, 3, 4, 5}};
  EXPECT_EQ(spread.quantile_s(0), 1);
  EXPECT_EQ(spread.quantile_s(0.95), 4.8);
  EXPECT_EQ(spread.mean_s(), 3);
}

}  // namespace
}  // namespace mb
