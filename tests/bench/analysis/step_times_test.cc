#include "bench/analysis/step_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "bench/analysis/breakdown.h"
#include "bench/analysis/bubble_form.h"
#include "tests/bench/synthetic.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// compute 0-40 and 60-80; dp all-reduce 30-70 on rank 0, whose peer arrives at 50; copy 75-90.
struct TwoRanks {
  HandPlan hand{"dp2"};
  Timeline timeline;
  TwoRanks() {
    hand.compute(0);
    hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
    hand.compute(0, Pass::optimizer);
    hand.add(0, Copy{}, Stream::copy);
    timeline = empty_timeline(hand.plan);
    timeline.lanes[0] = {{0, 40}, {30, 70}, {60, 80}, {75, 90}};
    timeline.lanes[1] = {{0, 50}, {50, 70}, {70, 100}, {100, 100}};
  }
};

TEST(StepTimes, ClassesAndExposureFollowTheirDefinitions) {
  const TwoRanks two;
  const StepTimes step = step_times(two.hand.plan, two.timeline);
  EXPECT_EQ(step.window, (Span{0, 100}));
  const RankTimes& rank = step.ranks[0];
  EXPECT_EQ(rank.compute_ns, 60);
  EXPECT_EQ(rank.optimizer_ns, 20);
  EXPECT_EQ(rank.comm_ns, 40);
  EXPECT_EQ(rank.overlapped_ns, 20);
  EXPECT_EQ(rank.exposed_comm_ns, 20);
  EXPECT_EQ(rank.memory_ns, 15);
  EXPECT_EQ(rank.overlapped_memory_ns, 5);
  EXPECT_EQ(rank.exposed_memory_ns, 10);
  EXPECT_EQ(rank.idle_ns, 10);
  EXPECT_EQ(rank.busy_ns, 90);
}

TEST(StepTimes, ExposureSplitsWhereTheLastRankArrives) {
  const TwoRanks two;
  const StepTimes step = step_times(two.hand.plan, two.timeline);
  ASSERT_EQ(step.axes, std::vector<std::string>{"dp"});
  EXPECT_EQ(step.ranks[0].axes[0].exposed_wait_ns, 10);
  EXPECT_EQ(step.ranks[0].axes[0].exposed_transfer_ns, 10);
  EXPECT_EQ(step.ranks[1].axes[0].exposed_wait_ns, 0);
  EXPECT_EQ(step.ranks[1].axes[0].exposed_transfer_ns, 20);
  EXPECT_EQ(step.ranks[0].axes[0].overlapped_transfer_ns, 10);  // of the 20 that overlap
  EXPECT_EQ(step.ranks[0].busy_effective_ns, 80);
}

TEST(StepTimes, ComputeIsToldApartByPass) {
  HandPlan hand("1");
  for (const Pass pass : {Pass::forward, Pass::recompute, Pass::input_grad, Pass::weight_grad})
    hand.compute(0, pass);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes = {{{0, 10}, {10, 30}, {30, 70}, {70, 75}}};
  const std::vector<StepTimes> steps = {step_times(hand.plan, timeline)};
  const auto of = [&](Pass pass) { return steps[0].ranks[0].pass_ns[static_cast<int>(pass)]; };
  EXPECT_EQ(of(Pass::forward), 10);
  EXPECT_EQ(of(Pass::recompute), 20);
  EXPECT_EQ(of(Pass::input_grad), 40);
  EXPECT_EQ(of(Pass::weight_grad), 5);
  EXPECT_EQ(steps[0].ranks[0].bubble->backward_ns, 65);
  EXPECT_EQ(steps[0].ranks[0].bubble->weight_grad_ns, 5);
  const Breakdown parts = breakdown(steps);
  ASSERT_EQ(parts.passes.size(), 4u);
  EXPECT_EQ(parts.passes[3].name, "recompute");
  EXPECT_EQ(parts.passes[3].total_ns, 20);
}

TEST(StepTimes, SpanThatEndsBeforeItStartsIsCountedAndLeftOut) {
  TwoRanks two;
  two.timeline.lanes[0][3] = {90, 75};
  const StepTimes step = step_times(two.hand.plan, two.timeline);
  EXPECT_EQ(step.invalid_spans, 1);
  EXPECT_EQ(step.ranks[0].memory_ns, 0);
}

TEST(StepTimes, InstantWithTransferAndWaitBelongsToTheTransfer) {
  HandPlan hand("dp2.tp2");
  hand.all_reduce(0, group_of(Axis::tp), Stream::tp);
  hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  // tp waits from 0 to 60 for rank 1; dp moves data from 0 to 40.
  timeline.lanes = {
      {{0, 80}, {0, 40}}, {{60, 80}, {0, 40}}, {{0, 80}, {0, 40}}, {{60, 80}, {0, 40}}};
  const RankTimes rank = step_times(hand.plan, timeline).ranks[0];
  EXPECT_EQ(rank.axes[0].exposed_wait_ns, 20);
  EXPECT_EQ(rank.axes[0].exposed_transfer_ns, 20);
  EXPECT_EQ(rank.axes[1].exposed_transfer_ns, 40);
}

TEST(StepTimes, NoBackwardMeansNoPipelineWindow) {
  const TwoRanks two;
  EXPECT_FALSE(step_times(two.hand.plan, two.timeline).ranks[0].bubble.has_value());
}

struct Case {
  int stages, micro_batches;
  std::string schedule;
};

class BalancedPipeline : public testing::TestWithParam<Case> {};

TEST_P(BalancedPipeline, BubbleOfEveryStageIsTheClosedForm) {
  const auto& [p, m, schedule] = GetParam();
  const StepShape shape = small_shape(p > 1 ? cat("pp", p) : "1", schedule, m);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const std::int64_t f = 1000, b = 1700;
  const StepTimes step = step_times(plan, balanced_timeline(plan, f, b));
  const BubbleForm form = *bubble_form(shape.mesh, shape.options);
  for (const RankTimes& rank : step.ranks) {
    const Bubble& bubble = *rank.bubble;
    EXPECT_EQ(bubble.bubble_ns(), (p - 1) * (f + b));
    EXPECT_EQ(bubble.compute_ns, m * (f + b));
    EXPECT_EQ(bubble.forward_ns, m * f);
    const double idle = static_cast<double>(bubble.bubble_ns());
    EXPECT_DOUBLE_EQ(idle / (idle + static_cast<double>(bubble.compute_ns)), form.of_window());
    EXPECT_DOUBLE_EQ(idle / static_cast<double>(bubble.compute_ns), form.of_ideal());
    if (const auto phases = bubble_phases(schedule, p, m, rank.stage, f, b)) {
      EXPECT_EQ(bubble.warm_up.bubble_ns(), phases->warm_up) << "stage " << rank.stage;
      EXPECT_EQ(bubble.steady.bubble_ns(), phases->steady) << "stage " << rank.stage;
      EXPECT_EQ(bubble.cool_down.bubble_ns(), phases->cool_down) << "stage " << rank.stage;
    }
  }
}

TEST_P(BalancedPipeline, PhasesAddUpToThePipelineWindow) {
  const auto& [p, m, schedule] = GetParam();
  const StepShape shape = small_shape(p > 1 ? cat("pp", p) : "1", schedule, m);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  for (const RankTimes& rank : step_times(plan, balanced_timeline(plan, 30, 50)).ranks) {
    std::int64_t total = 0;
    for (const Phase* phase :
         {&rank.bubble->warm_up, &rank.bubble->steady, &rank.bubble->cool_down}) {
      EXPECT_EQ(phase->compute_ns + sum(phase->transfer_ns) + sum(phase->wait_ns) +
                    phase->memory_ns + phase->idle_ns,
                phase->window_ns);
      total += phase->window_ns;
    }
    EXPECT_EQ(total, rank.bubble->window.end_ns - rank.bubble->window.start_ns);
  }
}

std::vector<Case> balanced_cases() {
  std::vector<Case> cases;
  for (const char* schedule : {"gpipe", "1f1b"})
    for (int p : {1, 2, 3, 4, 8})
      for (int m : {1, 2, 3, 4, 8, 11}) cases.push_back({p, m, schedule});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Schedules, BalancedPipeline, testing::ValuesIn(balanced_cases()),
                         [](const auto& info) {
                           return cat(info.param.schedule == "gpipe" ? "GPipe" : "OneFOneB", "P",
                                      info.param.stages, "M", info.param.micro_batches);
                         });

TEST(StepTimes, BalancedOneFOneBWaitsForItsNeighboursAndMovesNothing) {
  const StepShape shape = small_shape("pp4", "1f1b", 8);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const StepTimes step = step_times(plan, balanced_timeline(plan, 30, 50));
  ASSERT_EQ(step.axes[0], "pp");
  const Bubble& last = *step.ranks[3].bubble;
  EXPECT_EQ(last.warm_up.wait_ns[0], 3 * 30);
  EXPECT_EQ(sum(last.warm_up.transfer_ns), 0);
  EXPECT_EQ(last.warm_up.idle_ns, 0);
}

// Any timeline whatever: the parts add up, on shared lanes and on lanes of their own.
TEST(StepTimes, PartsAddUpOnRandomTimelines) {
  std::mt19937 random(7);
  const StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  for (int round = 0; round < 20; ++round) {
    std::uniform_int_distribution<int> cost(0, 9);
    Timeline timeline = virtual_timeline(plan, [&](int, InstructionId) { return cost(random); });
    if (round % 2) {
      timeline = one_lane_a_rank(timeline);
      for (auto& lane : timeline.lanes)
        for (Span& span : lane) span.end_ns += cost(random);
    }
    const std::vector<StepTimes> steps = {step_times(plan, timeline)};
    for (const RankTimes& rank : steps[0].ranks)
      EXPECT_EQ(rank.compute_ns + rank.exposed_comm_ns + rank.exposed_memory_ns + rank.idle_ns,
                steps[0].window_ns());
    const Breakdown parts = breakdown(steps);
    std::int64_t total = 0;
    for (const BreakdownPart& part : parts.parts) {
      EXPECT_GE(part.total_ns, 0) << part.name << part.axis;
      total += part.total_ns;
    }
    EXPECT_EQ(total, parts.window_ns * parts.ranks);
    EXPECT_EQ(parts.ranks, 8);
  }
}

TEST(StepTimes, SharedLanesGiveTheNumbersOfSeparateOnes) {
  const StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 4);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const Timeline shared = balanced_timeline(plan, 30, 50);
  const std::vector<StepTimes> one = {step_times(plan, shared)},
                               all = {step_times(plan, one_lane_a_rank(shared))};
  const Breakdown a = breakdown(one), b = breakdown(all);
  ASSERT_EQ(a.parts.size(), b.parts.size());
  for (std::size_t i = 0; i < a.parts.size(); ++i)
    EXPECT_EQ(a.parts[i].total_ns, b.parts[i].total_ns);
  EXPECT_EQ(a.window_ns, b.window_ns);
}

TEST(StepTimes, SlowStageTurnsIntoSteadyBubbleOfTheOthers) {
  const StepShape shape = small_shape("pp2", "1f1b", 16);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const Timeline timeline = virtual_timeline(plan, [&](int stage, InstructionId id) {
    const bool compute =
        std::holds_alternative<Compute>(plan.programs[stage].instructions[id].action);
    return compute ? (stage == 0 ? 20 : 10) : 0;
  });
  const std::vector<StepTimes> steps = {step_times(plan, timeline)};
  const std::vector<StageSummary> stages = stages_of(steps);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_GT(stages[1].steady.bubble_s(), 5 * stages[0].steady.bubble_s());
  EXPECT_GT(stages[1].steady.bubble_s(), stages[1].warm_up.bubble_s());
}

}  // namespace
}  // namespace mb
