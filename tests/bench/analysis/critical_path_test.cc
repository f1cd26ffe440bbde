#include "bench/analysis/critical_path.h"

#include <gtest/gtest.h>

#include <random>

#include "bench/analysis/bubble_form.h"
#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "tests/bench/synthetic.h"

namespace mb {
namespace {

CriticalPath path_of(const Plan& plan, const Timeline& timeline) {
  return critical_path(plan, {&timeline, 1});
}

// "matmul 40, dp 20": the parts of a path, in their order.
std::string text(const CriticalPath& path) {
  std::string out;
  for (const PathPart& part : path.parts)
    out += cat(out.empty() ? "" : ", ", part.text(), " ", part.total_ns);
  return out;
}

std::int64_t of_kind(const CriticalPath& path, std::string_view kind) {
  std::int64_t sum = 0;
  for (const PathPart& part : path.parts) sum += part.kind == kind ? part.total_ns : 0;
  return sum;
}

TEST(CriticalPath, GoesThroughTheRankThatAMeetingWaitedFor) {
  HandPlan hand("dp2");
  hand.compute(0);
  hand.all_reduce(0, group_of(Axis::dp), Stream::compute);
  hand.compute(0, Pass::optimizer);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, 40}, {40, 70}, {70, 90}};
  timeline.lanes[1] = {{0, 55}, {55, 70}, {70, 85}};
  const CriticalPath path = path_of(hand.plan, timeline);
  EXPECT_EQ(path.window_ns, 90);
  EXPECT_EQ(text(path), "matmul 55, optimizer 20, dp 15");
}

TEST(CriticalPath, TheSlowestOfEachMeetingIsOnIt) {
  HandPlan hand("dp2");
  for (int k = 0; k < 2; ++k) {
    hand.compute(0);
    hand.all_reduce(0, group_of(Axis::dp), Stream::compute);
  }
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, 30}, {30, 32}, {32, 42}, {42, 64}};
  timeline.lanes[1] = {{0, 10}, {10, 32}, {32, 62}, {62, 64}};
  // Both compute for 40; the path for 30 and 30.
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 60, dp 4");
}

TEST(CriticalPath, HiddenCommunicationIsNotOnIt) {
  HandPlan hand("dp2");
  hand.compute(0);
  const InstructionId sum = hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  hand.compute(0);
  Program& program = hand.plan.programs[0];
  program.waits = {0};
  program.instructions[sum].after = {0, 1};
  Timeline timeline = empty_timeline(hand.plan);
  for (auto& lane : timeline.lanes) lane = {{0, 40}, {40, 60}, {40, 80}};
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 80");
  for (auto& lane : timeline.lanes) lane = {{0, 40}, {40, 95}, {40, 80}};
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 40, dp 55");
}

TEST(CriticalPath, WhatNothingInThePlanExplainsIsTheHosts) {
  HandPlan hand("1");
  hand.compute(0);
  hand.add(0, Copy{}, Stream::compute);
  hand.compute(0, Pass::recompute);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{5, 40}, {43, 60}, {60, 80}};
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 35, recompute 20, copy 17, host 3");
  timeline.lanes[0][0].start_ns = 5;
  EXPECT_EQ(path_of(hand.plan, timeline).window_ns, 75);
}

TEST(CriticalPath, TheFirstOfALateRankIsTheHosts) {
  HandPlan hand("dp2");
  hand.compute(0);
  hand.all_reduce(0, group_of(Axis::dp), Stream::compute);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, 10}, {10, 50}};
  timeline.lanes[1] = {{30, 40}, {40, 50}};
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 10, dp 10, host 30");
}

TEST(CriticalPath, ARankThatDidNotNeedTheLastArrivalGoesOnItsOwnWay) {
  HandPlan hand("dp2");
  hand.compute(0);
  hand.all_reduce(0, group_of(Axis::dp), Stream::compute);
  hand.compute(0);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, 10}, {10, 15}, {15, 90}};  // a broadcast's root, say
  timeline.lanes[1] = {{0, 20}, {20, 30}, {30, 40}};
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 85, dp 5");
}

// A pipeline whose messages take no time: the busiest stage computes m (F + B), and the path
// (p - 1)(F + B) more.
TEST(CriticalPath, WaitIsTheBubbleOfTheClosedForm) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const auto& [mesh, micro_batches] :
         {std::pair("pp2", 4), std::pair("pp4", 8), std::pair("pp4.dp2", 4)}) {
      const StepShape shape = small_shape(mesh, schedule, micro_batches);
      const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
      const CriticalPath path = path_of(plan, balanced_timeline(plan, 100, 200));
      const int stages = shape.mesh.size(Axis::pp);
      EXPECT_NEAR(of_kind(path, "compute"), 300 * micro_batches, 2) << mesh << " " << schedule;
      EXPECT_NEAR(of_kind(path, "wait"), 300 * (stages - 1), 2) << mesh << " " << schedule;
      EXPECT_EQ(path.window_ns, 300 * (micro_batches + stages - 1));
    }
  }
}

TEST(CriticalPath, MessagesOnTheWayThereAndBackAreOfPp) {
  HandPlan hand("pp2");
  hand.compute(0);
  hand.add(0, Send{1}, Stream::pp_send, {.micro_batch = 0});
  hand.add(1, Recv{0}, Stream::pp_recv, {.micro_batch = 0});
  hand.compute(1);
  hand.plan.programs[0].waits = {0};
  hand.plan.programs[0].instructions[1].after = {0, 1};
  hand.plan.programs[1].waits = {0};
  hand.plan.programs[1].instructions[1].after = {0, 1};
  const Timeline timeline = virtual_timeline(hand.plan, [](int stage, InstructionId id) {
    return stage == 0 && id == 0 ? 100 : stage == 1 && id == 1 ? 70 : 10;
  });
  // One micro-batch goes through two stages, of which a rank is one.
  EXPECT_EQ(text(path_of(hand.plan, timeline)), "matmul 85, pp 10, wait 85");
}

TEST(CriticalPath, AddsUpToTheStepOfRealPlansOnAnyMachine) {
  std::mt19937 random(1);
  const char* meshes[] = {"1",   "dp4",          "tp4",     "pp4",    "dp2.pp2.tp2",
                          "cp2", "rdp2.dp2.tp2", "pp2.dp4", "cp2.pp2"};
  for (const char* mesh : meshes) {
    for (const char* stack : {"kernels", "megatron-b200"}) {
      StepShape shape = small_shape(mesh, "1f1b", 4);
      shape.options.zero = static_cast<int>(random() % 4);
      shape.options.recompute = random() % 2 ? Recompute::full : Recompute::none;
      if (shape.mesh.size(Axis::pp) > 1 && shape.options.zero > 1) shape.options.zero = 1;
      const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
      const auto cost = make_roofline_cost(plan, find_machine("h100x8"), find_stack(stack));
      const Timeline timeline = simulate(plan, *cost);
      const CriticalPath path = path_of(plan, timeline);  // throws unless it adds up
      const Span window = timeline.window();
      EXPECT_EQ(path.window_ns, window.end_ns - window.start_ns);
      EXPECT_EQ(of_kind(path, "host") > 0, std::string(stack) != "kernels") << mesh;
      EXPECT_EQ(of_kind(path, "recompute") > 0, shape.options.recompute == Recompute::full);
    }
  }
}

// Random spans, as clocks that disagree would leave them: the sum holds all the same.
TEST(CriticalPath, AddsUpOnTimelinesThatContradictThePlan) {
  std::mt19937 random(7);
  const StepShape shape = small_shape("dp2.pp2", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  for (int round = 0; round < 50; ++round) {
    Timeline timeline = one_lane_a_rank(balanced_timeline(plan, 100, 200));
    for (auto& lane : timeline.lanes) {
      for (Span& span : lane) {
        span.start_ns += static_cast<std::int64_t>(random() % 300);
        span.end_ns += static_cast<std::int64_t>(random() % 300);
      }
    }
    EXPECT_NO_THROW(path_of(plan, timeline));
  }
}

TEST(CriticalPath, StepsAddUp) {
  HandPlan hand("1");
  hand.compute(0);
  const Timeline one = {.lanes = {{{0, 10}}}, .lane_of_rank = {0}},
                 two = {.lanes = {{{100, 130}}}, .lane_of_rank = {0}};
  const Timeline steps[] = {one, two};
  const CriticalPath path = critical_path(hand.plan, steps);
  EXPECT_EQ(path.window_ns, 40);
  EXPECT_EQ(text(path), "matmul 40");
}

}  // namespace
}  // namespace mb
