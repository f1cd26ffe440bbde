// What runs beside each other, against what follows by hand.
#include "parallel/exec/fluid.h"

#include <gtest/gtest.h>

#include "parallel/cost/cost.h"
#include "parallel/strategy/step.h"
#include "tests/bench/synthetic.h"

namespace mb {
namespace {

constexpr InstructionId kCompute = 0, kReduce = 1;

// A computation of 1,000 ns beside a collective of 600, on a rank of two.
struct Pair {
  HandPlan hand{"dp2"};
  StepCosts costs;
  Pair() {
    hand.compute(0);
    hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
    costs.duration_ns = {{1000, 600}};
    costs.interference = {{{}, {.sms = 0.25, .memory = 0.5}}};
  }
  std::vector<Span> spans() const {
    return fluid_timeline(hand.plan, RankClasses::by_stage(hand.plan), costs).lanes[0];
  }
};

TEST(Fluid, ComputationGoesWithoutTheSmsOfACollective) {
  const std::vector<Span> spans = Pair().spans();
  EXPECT_EQ(spans[kReduce], (Span{0, 600}));
  EXPECT_EQ(spans[kCompute], (Span{0, 1150})) << "450 of work in 600, then 550";
}

TEST(Fluid, ComputationBoundByMemoryGoesWithoutItsBandwidth) {
  Pair pair;
  pair.costs.interference[0][kCompute].memory_bound = true;
  EXPECT_EQ(pair.spans()[kCompute], (Span{0, 1300}));
}

TEST(Fluid, ACollectiveIsSlowerWhileItsRankComputes) {
  Pair pair;
  pair.costs.comm_slowed_by = 0.5;
  pair.costs.duration_ns = {{300, 600}};
  const std::vector<Span> spans = pair.spans();
  EXPECT_EQ(spans[kCompute], (Span{0, 400})) << "at 3 / 4";
  EXPECT_EQ(spans[kReduce], (Span{0, 734})) << "400 at 2 / 3, then 333.3";
}

TEST(Fluid, TwoGroupsOnOneNicGetHalfEach) {
  HandPlan hand("dp2.rdp2");
  hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  hand.all_reduce(0, group_of(Axis::rdp), Stream::cp);
  StepCosts costs{.duration_ns = {{1000, 1000}}, .interference = {{{.nic = 1}, {.nic = 1}}}};
  const RankClasses classes = RankClasses::by_stage(hand.plan);
  const std::vector<Span> equal = fluid_timeline(hand.plan, classes, costs).lanes[0];
  EXPECT_EQ(equal, (std::vector<Span>{{0, 2000}, {0, 2000}}));
  costs.duration_ns = {{1000, 400}};
  const std::vector<Span> unequal = fluid_timeline(hand.plan, classes, costs).lanes[0];
  EXPECT_EQ(unequal, (std::vector<Span>{{0, 1400}, {0, 800}})) << "alone once the other has ended";
}

TEST(Fluid, StartsNextAfterTheGapAndOnAnotherStreamOnceItIsHandedOver) {
  Pair pair;
  pair.hand.compute(0);
  pair.costs.duration_ns[0].push_back(500);
  pair.costs.interference[0].assign(3, {});
  pair.costs.gap_ns = 7;
  Program& program = pair.hand.plan.programs[0];
  program.waits = {kCompute};
  program.instructions[kReduce].after = {.begin = 0, .count = 1};
  pair.costs.handoff_ns = 40;
  const std::vector<Span> alone = pair.spans();
  EXPECT_EQ(alone, (std::vector<Span>{{0, 1000}, {1040, 1640}, {1007, 1507}}));
  pair.costs.interference.clear();
  EXPECT_EQ(timeline_of(pair.hand.plan, RankClasses::by_stage(pair.hand.plan), pair.costs).lanes[0],
            alone);
}

// Four layers of 175B on eight tensor ranks, whose matmuls beside an exchange are cut into so many
// runs of rows: one is exchanged while the next is computed.
double step_s(int tensor_chunks, double comm_sm_share) {
  ModelConfig model = find_model("gpt3-175b");
  model.layers = 4;
  const Plan plan = plan_step(model, Mesh::parse("tp8"),
                              {.micro_batch = 4,
                               .dtype = DType::bf16,
                               .sequence_parallel = true,
                               .tensor_chunks = tensor_chunks});
  Stack stack = find_stack("kernels");
  stack.comm_sm_share = comm_sm_share;
  const auto cost = make_roofline_cost(plan, find_machine("h100x8"), stack);
  const Span window =
      timeline_of(plan, RankClasses::by_stage(plan), costs_of(plan, *cost)).window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

TEST(Fluid, OverlapCanLose) {
  EXPECT_LT(step_s(2, 0), step_s(1, 0)) << "free, it hides more than its smaller pieces cost";
  EXPECT_GT(step_s(2, 0.12), step_s(1, 0.12)) << "at 16 of 132 SMs it does not";
}

// Where some of a step is beside collectives, it loses less than the mean that was measured of
// computation that is: 18.9 % (arXiv 2507.03114).
TEST(Fluid, LosesNoMoreThanWasMeasured) {
  const double free = step_s(2, 0), shared = step_s(2, 0.12);
  EXPECT_GT(shared, free);
  EXPECT_LT(shared, free / (1 - 0.189));
}

}  // namespace
}  // namespace mb
