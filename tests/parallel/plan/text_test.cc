#include "parallel/plan/text.h"

#include <gtest/gtest.h>

#include "parallel/strategy/step.h"
#include "tests/support/golden.h"

namespace mb {
namespace {

Plan plan_of(const std::string& mesh, std::int64_t layers, int micro_batches) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = layers;
  return plan_step(model, Mesh::parse(mesh), {.micro_batches = micro_batches});
}

TEST(PlanText, ProgramOfAStageIsThatOfTheGolden) {
  const Plan plan = plan_of("pp2.tp2", 2, 2);
  expect_golden("plan_gpt-tiny_pp2.tp2_m2_stage0", program_text(plan, plan.programs[0]));
}

TEST(PlanText, ScheduleIsThatOfTheGolden) {
  expect_golden("schedule_1f1b_pp4_m8", schedule_text(plan_of("pp4", 4, 8)));
}

TEST(PlanText, SlotsNameTheirChunkOnlyWhereThereAreSeveral) {
  EXPECT_EQ(to_text({{Pass::forward, 3}, {Pass::input_grad, 0, 1}, {Pass::weight_grad, 12}}),
            "F3 I0.1 W12");
  EXPECT_EQ(to_text(std::vector<Slot>{}), "");
}

TEST(PlanText, IsTheSameOnEveryBuild) {
  const Plan one = plan_of("dp2.pp4.tp2", 4, 8), other = plan_of("dp2.pp4.tp2", 4, 8);
  for (std::size_t s = 0; s < one.programs.size(); ++s) {
    EXPECT_EQ(program_text(one, one.programs[s]), program_text(other, other.programs[s]));
  }
}

}  // namespace
}  // namespace mb
