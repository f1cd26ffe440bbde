#include "bench/analysis/theory.h"

#include <gtest/gtest.h>

#include "bench/analysis/memory.h"
#include "tests/bench/synthetic.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

TEST(Theory, UnknownScheduleHasNoClosedForm) {
  EXPECT_FALSE(micro_batches_in_flight(small_shape("pp2", "other", 4), 0).has_value());
  EXPECT_FALSE(
      memory_form(small_shape("pp2", "other", 4), 0)[static_cast<int>(MemoryClass::activation)]);
}

TEST(Theory, OneFOneBKeepsFewerMicroBatchesTowardsTheEnd) {
  const StepShape shape = small_shape("pp4", "1f1b", 8);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(micro_batches_in_flight(shape, stage), 4 - stage);
  EXPECT_EQ(micro_batches_in_flight(small_shape("pp4", "gpipe", 8), 3), 8);
}

TEST(Theory, LocalParametersOfOneRankAreTheModels) {
  StepShape shape = small_shape("1", "1f1b", 1, 3);
  shape.model.vocabulary_multiple = 1;
  EXPECT_EQ(local_parameters(shape, 0), parameter_count(shape.model));
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

TEST_P(AgainstPlan, PersistentClassesEqualThePlan) {
  const StepShape s = shape();
  const Plan plan = plan_step(s.model, s.mesh, s.options);
  for (int stage = 0; stage < s.stages(); ++stage) {
    const auto form = memory_form(s, stage);
    const MemoryPeak peak = memory_peak(plan.programs[stage]);
    for (MemoryClass c : {MemoryClass::parameter, MemoryClass::gradient, MemoryClass::moment})
      EXPECT_EQ(form[static_cast<int>(c)], peak.class_peak[static_cast<int>(c)]) << name_of(c);
  }
}

// What the plan keeps beyond the stored activations is whole messages: at most one input received
// ahead and outputs of two slots on their way.
TEST_P(AgainstPlan, ActivationsExceedTheTextbookByMessagesOnly) {
  const StepShape s = shape();
  const Plan plan = plan_step(s.model, s.mesh, s.options);
  const std::int64_t message = s.hidden_elements() * size_of(s.options.dtype);
  for (int stage = 0; stage < s.stages(); ++stage) {
    const std::int64_t form = *memory_form(s, stage)[static_cast<int>(MemoryClass::activation)];
    const std::int64_t more =
        memory_peak(plan.programs[stage]).class_peak[static_cast<int>(MemoryClass::activation)] -
        form;
    EXPECT_GE(more, 0) << "stage " << stage;
    EXPECT_LE(more, 3 * message) << "stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, AgainstPlan,
                         testing::Combine(testing::Values("1", "dp2", "tp2", "pp2", "pp3.tp2",
                                                          "dp2.pp2.tp2", "dp2.pp4.tp4"),
                                          testing::Values("gpipe", "1f1b"),
                                          testing::Values(0, 1, 2, 3)));

}  // namespace
}  // namespace mb
