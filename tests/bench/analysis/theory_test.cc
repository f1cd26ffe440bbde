#include "bench/analysis/theory.h"

#include <gtest/gtest.h>

#include "bench/analysis/traffic.h"
#include "tests/bench/synthetic.h"

namespace mb {
namespace {

TEST(Theory, BubbleShareIsThePublishedForm) {
  const auto share = bubble_share("1f1b", 4, 8);
  EXPECT_DOUBLE_EQ(share->of_window, 3.0 / 11);  // fixture: p=4, m=8 is 0.2727
  EXPECT_DOUBLE_EQ(share->of_ideal, 3.0 / 8);
  EXPECT_EQ(bubble_share("gpipe", 1, 3)->of_window, 0);
}

TEST(Theory, UnknownScheduleHasNoClosedForm) {
  EXPECT_FALSE(bubble_share("zb-h1", 4, 8).has_value());
  EXPECT_FALSE(bubble_phases("zb-h1", 4, 8, 0, 1, 2).has_value());
}

TEST(Theory, PhasesOfEveryStageSumToTheSameBubble) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(bubble_phases(schedule, 4, 6, stage, 3, 5)->sum(), 3 * (3 + 5));
}

TEST(Theory, FewerMicroBatchesThanStagesHaveNoFormByPhaseInOneFOneB) {
  EXPECT_FALSE(bubble_phases("1f1b", 4, 3, 0, 1, 2).has_value());
}

// The closed forms against what the builder makes, over models and meshes.
class AgainstPlan : public testing::TestWithParam<std::tuple<const char*, const char*, int>> {
 protected:
  StepShape shape() const {
    const auto& [mesh, schedule, variant] = GetParam();
    StepShape shape = small_shape(mesh, schedule, 5, 2);
    shape.model.tied = variant != 1;
    if (variant == 2) {
      shape.model.arch = Arch::llama;
      shape.options.dtype = DType::fp64;
    }
    if (variant == 3) {
      shape.model.norm = NormPlace::post;
      shape.options.optimizer.kind = Optimizer::sgd;
    }
    return shape;
  }
};

TEST_P(AgainstPlan, LedgerEqualsTheInstructionsOfEveryStage) {
  const StepShape s = shape();
  const Plan plan = plan_step(s.model, s.mesh, s.options);
  for (const TrafficRow& row : traffic_report(plan, s, {}))
    EXPECT_TRUE(row.equal && row.closed_form && row.plan)
        << "stage " << row.stage << " " << row.axis << ": closed form "
        << (row.closed_form ? row.closed_form->elements : -1) << ", plan "
        << (row.plan ? row.plan->elements : -1);
}

INSTANTIATE_TEST_SUITE_P(Meshes, AgainstPlan,
                         testing::Combine(testing::Values("1", "dp2", "tp2", "pp2", "pp3.tp2",
                                                          "dp2.pp2.tp2", "dp2.pp4.tp4"),
                                          testing::Values("gpipe", "1f1b"),
                                          testing::Values(0, 1, 2, 3)));

}  // namespace
}  // namespace mb
