#include "parallel/schedule/check_slots.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"
#include "tests/support/slot_simulator.h"

namespace mb {
namespace {

constexpr Pass F = Pass::forward, B = Pass::backward, I = Pass::input_grad, W = Pass::weight_grad;

std::string refusal(const std::vector<std::vector<Slot>>& slots, const PipelineShape& shape,
                    Placement placement = Placement::linear) {
  return message_of([&] { check_slots(slots, placement, shape); });
}

TEST(CheckSlots, TakesBOrIWithALaterW) {
  EXPECT_EQ(refusal({{{F, 0}, {B, 0}}}, {1, 1, 1}), "no Error");
  EXPECT_EQ(refusal({{{F, 0}, {F, 1}, {I, 1}, {B, 0}, {W, 1}}}, {1, 1, 2}), "no Error");
}

TEST(CheckSlots, NamesTheFirstSlotThatIsWrong) {
  EXPECT_EQ(refusal({{{F, 0}, {B, 0}, {B, 1}, {F, 1}}}, {1, 1, 2}),
            "stage 0 slot 2 'B1': it needs F1 before it");
  EXPECT_EQ(refusal({{{F, 0}, {F, 0}, {B, 0}}}, {1, 1, 1}),
            "stage 0 slot 1 'F0': it has run before; leave one of the two out");
  EXPECT_EQ(refusal({{{F, 0}, {W, 0}, {I, 0}}}, {1, 1, 1}),
            "stage 0 slot 1 'W0': it needs I0 before it");
  EXPECT_EQ(refusal({{{F, 0}, {I, 0}, {B, 0}}}, {1, 1, 1}),
            "stage 0 slot 2 'B0': this micro-batch has gone back before; run either B, or I and "
            "then W, once");
  EXPECT_EQ(refusal({{{F, 0}, {B, 0}, {W, 0}}}, {1, 1, 1}),
            "stage 0 slot 2 'W0': its weight gradient has been taken before; leave one of the two "
            "out");
  EXPECT_EQ(refusal({{{F, 1}}}, {1, 1, 1}),
            "stage 0 slot 0 'F1': there are micro-batches 0 to 0 only");
  EXPECT_EQ(refusal({{{F, 0, 2}}}, {1, 2, 1}, Placement::looped),
            "stage 0 slot 0 'F0.2': a stage has chunks 0 to 1 only");
  EXPECT_EQ(refusal({{{Pass::reduce, 0}}}, {1, 1, 1}),
            "stage 0 slot 0 'G0': a schedule has passes F, B, I and W only");
}

TEST(CheckSlots, NamesWhatIsMissing) {
  const std::vector<Slot> whole{{F, 0}, {B, 0}};
  EXPECT_EQ(refusal({whole, {}}, {2, 1, 1}), "stage 1 never runs F0; add it");
  EXPECT_EQ(refusal({whole, {{F, 0}}}, {2, 1, 1}), "stage 1 never runs B0; add it, or I0 and W0");
  EXPECT_EQ(refusal({whole, {{F, 0}, {I, 0}}}, {2, 1, 1}),
            "stage 1 never runs W0; add it after I0");
  EXPECT_EQ(refusal({whole}, {2, 1, 1}),
            "a schedule of 1 stages does not fit 2 pipeline ranks; give one line for each");
}

TEST(CheckSlots, SaysForWhatEachStageWaitsInADeadlock) {
  EXPECT_EQ(
      refusal({{{F, 0}, {B, 0}, {F, 1}, {B, 1}}, {{F, 1}, {B, 1}, {F, 0}, {B, 0}}}, {2, 1, 2}),
      "stage 0 never gets further, as slot 1 'B0' waits for B0 of stage 1, and stage 1 slot "
      "0 'F1' waits for F1 of stage 0; let each of them run after what it waits for");
}

TEST(CheckSlots, FollowsChunksByTheirPlacement) {
  const std::vector<std::vector<Slot>> v{{{F, 0}, {F, 0, 1}, {B, 0, 1}, {B, 0}},
                                         {{F, 0}, {F, 0, 1}, {B, 0, 1}, {B, 0}}};
  EXPECT_EQ(refusal(v, {2, 2, 1}, Placement::v), "no Error");
  const std::vector<std::vector<Slot>> turned{v[0], {{F, 0, 1}, {F, 0}, {B, 0, 1}, {B, 0}}};
  EXPECT_NE(refusal(turned, {2, 2, 1}, Placement::v), "no Error");
}

TEST(SlotSimulator, FindsTheSameDeadlock) {
  EXPECT_EQ(message_of([] {
              simulate_slots({{{F, 0}, {B, 0}, {F, 1}, {B, 1}}, {{F, 1}, {B, 1}, {F, 0}, {B, 0}}},
                             Placement::linear);
            }),
            "deadlock: stage 0 at slot 1 B0; stage 1 at slot 0 F1;");
}

}  // namespace
}  // namespace mb
