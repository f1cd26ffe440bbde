#include "bench/profile/step_trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/plan/text.h"
#include "parallel/strategy/step.h"
#include "workloads/model/config.h"

namespace mb {
namespace {

// Of rank 1, an instruction lasts 1000 ns after the one before, and its work from 100 ns after its
// begin to 50 ns before its end: two kernels and a gap of 200 ns.
struct Step {
  Plan plan = plan_step(find_model("gpt-tiny"), Mesh::parse("dp2"), {.micro_batches = 2});
  Timeline events = empty_timeline(plan);
  ActivityRecords records;
  int instructions = static_cast<int>(plan.program_of(1).instructions.size());

  Step() {
    for (int id = 0; id < instructions; ++id) {
      const std::int64_t begin = 10'000 + 1000 * id;
      events.lanes[1][id] = {begin, begin + 1000};
      const auto link = static_cast<std::uint32_t>(2 * id);
      records.work.push_back({Activity::kernel, begin + 100, begin + 400, 0, 0, link, ""});
      records.work.push_back({Activity::copy, begin + 600, begin + 950, 0, 0, link + 1, ""});
      for (const std::uint32_t each : {link, link + 1})
        records.links.push_back({each, external_id(1, static_cast<std::uint32_t>(id))});
    }
  }
};

TEST(StepTrace, SumsTheWorkOfInstructionsOfAClassOverSteps) {
  Step step;
  const int matmuls = static_cast<int>(std::ranges::count_if(
      step.plan.program_of(1).instructions,
      [&](const Instruction& i) { return action_text(step.plan, i).starts_with("matmul "); }));
  ASSERT_GT(matmuls, 0);
  StepTrace trace;
  for (int again = 0; again < 2; ++again)
    add_traced_step(step.plan, step.events, {1}, 0, step.records, trace);
  EXPECT_EQ(trace.steps, 2);
  EXPECT_EQ(trace.quality.placed, 4 * step.instructions);
  std::int64_t instructions = 0;
  for (const ActivityClass& of_class : trace.classes) {
    instructions += of_class.instructions;
    EXPECT_EQ(of_class.kernels, of_class.instructions);
    EXPECT_EQ(of_class.copies, of_class.instructions);
    EXPECT_EQ(of_class.busy_ns, 650 * of_class.instructions);
    if (of_class.name != "matmul") continue;
    EXPECT_EQ(of_class.instructions, 2 * matmuls);
  }
  EXPECT_EQ(instructions, 2 * step.instructions);
  EXPECT_EQ(trace.begin->ns, 100);
  EXPECT_EQ(trace.end->ns, 50);
}

TEST(StepTrace, NamesTheInstructionThatIsFarthestFromItsEvents) {
  Step step;
  step.records.work[2 * 5 + 1].end_ns += 300;
  step.records.work[2 * 3].start_ns -= 400;
  StepTrace trace;
  add_traced_step(step.plan, step.events, {1}, 0, step.records, trace);
  EXPECT_EQ(trace.end->ns, 250);
  EXPECT_EQ(trace.end->instruction, 5);
  EXPECT_EQ(trace.end->rank, 1);
  EXPECT_EQ(trace.begin->ns, 300);
  EXPECT_EQ(trace.begin->instruction, 3);
}

TEST(StepTrace, CountsWhatIsFartherOutsideThanClocksAreApart) {
  Step step;
  step.records.work.front().start_ns -= 150;  // 50 ns before the first event
  StepTrace near, far;
  add_traced_step(step.plan, step.events, {1}, 50, step.records, near);
  add_traced_step(step.plan, step.events, {1}, 49, step.records, far);
  EXPECT_EQ(near.quality.out_of_window, 0);
  EXPECT_EQ(far.quality.out_of_window, 1);
  EXPECT_EQ(far.quality.placed, near.quality.placed - 1);
}

TEST(StepTrace, HasNoDifferencesWithoutRecords) {
  const Step step;
  StepTrace trace;
  add_traced_step(step.plan, step.events, {1}, 0, {.dropped = 7}, trace);
  EXPECT_FALSE(trace.begin || trace.end);
  EXPECT_TRUE(trace.classes.empty());
  EXPECT_EQ(trace.quality.dropped, 7);
}

}  // namespace
}  // namespace mb
