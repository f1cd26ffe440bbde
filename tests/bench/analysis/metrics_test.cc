#include "bench/analysis/metrics.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// One rank that computes for `compute_ns` of 1000.
std::vector<StepTimes> one_rank(std::int64_t compute_ns) {
  HandPlan hand("1");
  hand.compute(0);
  hand.add(0, Copy{}, Stream::copy);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, compute_ns}, {1000, 1000}};
  return {step_times(hand.plan, timeline)};
}

StepWork work(double model_flops, std::optional<double> peak) {
  return {.tokens = 500, .model_flops = model_flops, .peak_flops_per_s = peak};
}

double only(const std::vector<Metric>& metrics, const char* name) {
  const Metric* metric = find(metrics, name);
  return metric && metric->samples.size() == 1 ? metric->samples[0] : -1;
}

std::string reason(const std::vector<Metric>& metrics, const char* name) {
  const Metric* metric = find(metrics, name);
  return metric ? metric->reason : "no such metric";
}

TEST(Metrics, RatesFollowFromTheStepWindow) {
  const auto metrics = step_metrics(one_rank(900), work(300, 1e9));
  EXPECT_DOUBLE_EQ(only(metrics, "step_s"), 1e-6);
  EXPECT_DOUBLE_EQ(only(metrics, "tokens_per_s"), 5e8);
  EXPECT_DOUBLE_EQ(only(metrics, "mfu"), 0.3);
  EXPECT_DOUBLE_EQ(only(metrics, "hfu"), 0.3);
  EXPECT_DOUBLE_EQ(only(metrics, "compute_s"), 900e-9);
}

TEST(Metrics, RecomputedFlopsRaiseHfuAlone) {
  StepWork w = work(300, 1e9);
  w.recomputed_flops = 100;
  const auto metrics = step_metrics(one_rank(900), w);
  EXPECT_DOUBLE_EQ(only(metrics, "mfu"), 0.3);
  EXPECT_DOUBLE_EQ(only(metrics, "hfu"), 0.4);
}

TEST(Metrics, UnknownPeakMeansNoMfuAndNotZero) {
  const auto metrics = step_metrics(one_rank(900), work(300, std::nullopt));
  EXPECT_TRUE(find(metrics, "mfu")->samples.empty());
  EXPECT_EQ(reason(metrics, "mfu"), "the peak of this device is not known");
  EXPECT_EQ(reason(metrics, "hfu"), reason(metrics, "mfu"));
}

TEST(Metrics, MfuAboveOneIsRefused) {
  const auto metrics = step_metrics(one_rank(900), work(1040, 1e9));
  EXPECT_TRUE(find(metrics, "mfu")->samples.empty());
  EXPECT_EQ(reason(metrics, "mfu").substr(0, 24), "refused: MFU 1.04 is abo");
}

TEST(Metrics, MfuAboveHfuIsRefused) {
  StepWork w = work(300, 1e9);
  w.recomputed_flops = -100;
  EXPECT_EQ(reason(step_metrics(one_rank(900), w), "mfu"), "refused: MFU 0.3 is above HFU 0.2");
}

TEST(Metrics, MfuAboveTheComputeShareIsRefused) {
  EXPECT_EQ(reason(step_metrics(one_rank(200), work(300, 1e9)), "mfu"),
            "refused: MFU 0.3 is above the share of time in compute, 0.2");
}

TEST(Metrics, RanksThatShareADeviceAddUpOnIt) {
  HandPlan hand("dp4");
  hand.compute(0);
  hand.add(0, Copy{}, Stream::copy);
  Timeline timeline = empty_timeline(hand.plan);
  for (int rank = 0; rank < 4; ++rank)
    timeline.lanes[rank] = {{200 * rank, 200 * (rank + 1)}, {1000, 1000}};
  const std::vector<StepTimes> steps = {step_times(hand.plan, timeline)};
  EXPECT_DOUBLE_EQ(only(step_metrics(steps, work(600, 1e9)), "mfu"), 0.6);
}

TEST(Metrics, OverlapOfNothingIsAbsentAndSaysSo) {
  const auto metrics = step_metrics(one_rank(900), work(300, 1e9));
  EXPECT_TRUE(find(metrics, "overlap_ratio")->samples.empty());
  EXPECT_EQ(reason(metrics, "overlap_ratio"), "no communication");
  EXPECT_EQ(reason(metrics, "bubble_fraction"), "one stage is no pipeline");
}

TEST(Metrics, EveryMetricHasSamplesOrAReason) {
  for (const auto& steps : {one_rank(900), std::vector<StepTimes>{}})
    for (const Metric& metric : step_metrics(steps, work(300, 1e9)))
      EXPECT_NE(metric.samples.empty(), metric.reason.empty()) << metric.name;
}

TEST(Metrics, BubbleFractionIsTheMeanOverStages) {
  const StepShape shape = small_shape("pp4", "1f1b", 8);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const std::vector<StepTimes> steps = {step_times(plan, balanced_timeline(plan, 30, 50))};
  const auto metrics = step_metrics(steps, work(1, std::nullopt));
  EXPECT_DOUBLE_EQ(only(metrics, "bubble_fraction"), 3.0 / 11);
  EXPECT_DOUBLE_EQ(only(metrics, "bubble_over_ideal"), 3.0 / 8);
}

TEST(Metrics, ExposedAxesAddUpToExposedCommunication) {
  const StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const std::vector<StepTimes> steps = {
      step_times(plan, virtual_timeline(plan, [](int, InstructionId id) { return id % 5; }))};
  const auto metrics = step_metrics(steps, work(1, std::nullopt));
  double sum = 0;
  for (const char* axis : {"tp", "pp", "dp", "embedding", "world"})
    sum += only(metrics, cat("exposed_comm_", axis, "_s").c_str());
  EXPECT_NEAR(sum, only(metrics, "exposed_comm_s"), 1e-15);
}

TEST(Metrics, PlannedFlopsCountEveryRankOfEveryStage) {
  HandPlan hand("dp2.pp2");
  hand.compute(0);
  hand.compute(1);
  hand.compute(1, Pass::recompute);
  EXPECT_EQ(planned_flops(hand.plan), 6 * 60);  // matmul 2x3x5 is 60 FLOP
  EXPECT_EQ(recomputed_flops(hand.plan), 2 * 60);
}

// 4/3 of a layer's model FLOPs, but for its last product, of which the backward needs no result.
TEST(Metrics, FullRecomputationCountsTheForwardOfEveryLayerOnceMore) {
  StepShape shape = small_shape("dp2.pp2", "1f1b", 3, 2);
  shape.options.recompute = Recompute::full;
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  double forward = 0;
  for (const Program& program : plan.programs) {
    for (const Instruction& i : program.instructions) {
      const auto* compute = std::get_if<Compute>(&i.action);
      if (!compute || i.label.pass != Pass::forward || i.label.layer < 0) continue;
      if (plan.names[i.label.site] != "mlp.down") forward += flops(plan.op(*compute));
    }
  }
  EXPECT_GT(forward, 0);
  EXPECT_EQ(recomputed_flops(plan), 2 * forward);
}

TEST(Metrics, SpreadOverRanksNamesTheExtremes) {
  HandPlan hand("dp3");
  hand.compute(0);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes = {{{0, 50}}, {{0, 90}}, {{0, 20}}};
  const std::vector<StepTimes> steps = {step_times(hand.plan, timeline)};
  const auto spreads = rank_spreads(steps);
  EXPECT_EQ(spreads[0].name, "compute_s");
  EXPECT_EQ(spreads[0].min_rank, 2);
  EXPECT_EQ(spreads[0].max_rank, 1);
  EXPECT_DOUBLE_EQ(spreads[0].median, 50e-9);
}

}  // namespace
}  // namespace mb
