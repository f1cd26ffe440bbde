#include "parallel/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/plan/text.h"
#include "parallel/schedule/check_slots.h"
#include "tests/support/error.h"
#include "tests/support/golden.h"
#include "tests/support/shapes.h"

namespace mb {
namespace {

std::string order(std::string_view schedule, int rank, const PipelineShape& shape) {
  return to_text(find_schedule(schedule).order(rank, shape));
}

std::string refusal(std::string_view schedule, const PipelineShape& shape) {
  return message_of([&] { find_schedule(schedule).check(shape); });
}

TEST(GPipe, RunsAllForwardsThenAllBackwards) {
  EXPECT_EQ(order("gpipe", 0, {1, 1, 1}), "F0 B0");
  EXPECT_EQ(order("gpipe", 0, {4, 1, 3}), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(order("gpipe", 3, {4, 1, 3}), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(order("gpipe", 1, {2, 1, 4}), "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST(OneFOneB, LastStageAlternatesFromTheStart) {
  EXPECT_EQ(order("1f1b", 1, {2, 1, 2}), "F0 B0 F1 B1");
  EXPECT_EQ(order("1f1b", 3, {4, 1, 3}), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(order("1f1b", 0, {1, 1, 2}), "F0 B0 F1 B1");
}

TEST(OneFOneB, FillsThePipeThenAlternatesThenDrains) {
  EXPECT_EQ(order("1f1b", 0, {2, 1, 4}), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(order("1f1b", 0, {4, 1, 8}), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(order("1f1b", 1, {4, 1, 8}), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(order("1f1b", 2, {4, 1, 8}), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
}

TEST(OneFOneB, WithFewerMicroBatchesThanStagesEarlyStagesRunAllForwardsFirst) {
  EXPECT_EQ(order("1f1b", 0, {4, 1, 1}), "F0 B0");
  EXPECT_EQ(order("1f1b", 0, {4, 1, 2}), "F0 F1 B0 B1");
  EXPECT_EQ(order("1f1b", 1, {4, 1, 2}), "F0 F1 B0 B1");
  EXPECT_EQ(order("1f1b", 2, {4, 1, 2}), "F0 F1 B0 B1");
  EXPECT_EQ(order("1f1b", 3, {4, 1, 2}), "F0 B0 F1 B1");
}

TEST(Interleaved, RunsRoundsThroughAllChunksAndBack) {
  EXPECT_EQ(order("interleaved", 0, {2, 2, 4}),
            "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(order("interleaved", 1, {2, 2, 4}),
            "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  EXPECT_EQ(order("interleaved", 0, {1, 2, 2}), "F0 F0.1 B0.1 F1 B0 F1.1 B1.1 B1");
}

TEST(Interleaved, TakesWhatIsLeftAsAShorterLastRound) {
  EXPECT_EQ(order("interleaved", 1, {2, 2, 5, 3}),
            "F0 F1 F2 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3 B0 F4 B1 F3.1 B2 F4.1 B3.1 B4.1 B3 B4");
}

TEST(Interleaved, OfOneChunkIsOneFOneBSlotBySlot) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 3 * p; ++m) {
      for (int rank = 0; rank < p; ++rank)
        EXPECT_EQ(order("interleaved", rank, {p, 1, m}), order("1f1b", rank, {p, 1, m}));
    }
  }
}

TEST(ZbH1, PutsOffTheWeightGradientsOfARankByItsNumber) {
  EXPECT_EQ(order("zb-h1", 0, {3, 1, 4}), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(order("zb-h1", 1, {3, 1, 4}), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(order("zb-h1", 2, {3, 1, 4}), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
  EXPECT_EQ(order("zb-h1", 2, {4, 1, 1}), "F0 I0 W0");
}

TEST(InterleavedZb, OfOneChunkIsZbH1) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 3 * p; ++m) {
      for (int rank = 0; rank < p; ++rank)
        EXPECT_EQ(order("interleaved-zb", rank, {p, 1, m}), order("zb-h1", rank, {p, 1, m}));
    }
  }
}

// Each at p=4, two micro-batches a rank: all rows of the schedule.
TEST(Schedules, AreThoseOfTheGoldens) {
  for (const Schedule& schedule : schedules()) {
    const int chunks = schedule.placement == Placement::linear ? 1 : 2;
    expect_golden(cat("schedule_", schedule.name, "_pp4_m8"),
                  schedule_text(slots_of(schedule, {4, chunks, 8}), schedule.placement));
  }
}

TEST(Schedules, AreCompleteAndEndForEveryShapeThatTheyTake) {
  for (const Schedule& schedule : schedules()) {
    std::set<int> chunks;
    for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
      const auto slots = slots_of(schedule, shape);
      ASSERT_EQ(message_of([&] { check_slots(slots, schedule.placement, shape); }), "no Error")
          << shape_text(schedule.name, shape);
      for (const auto& rank : slots) {
        const bool splits = std::any_of(rank.begin(), rank.end(), [](const Slot& slot) {
          return slot.pass == Pass::weight_grad;
        });
        EXPECT_EQ(splits, schedule.splits_backward) << shape_text(schedule.name, shape);
      }
      chunks.insert(shape.chunks);
    }
    EXPECT_EQ(chunks, schedule.placement == Placement::linear   ? std::set<int>({1})
                      : schedule.placement == Placement::looped ? std::set<int>({1, 2, 3, 4})
                                                                : std::set<int>({2}))
        << schedule.name;
  }
}

TEST(Schedules, ButTheInterleavedAndDualPipeVTakeAnyNumberOfMicroBatches) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v"}) {
    const int chunks = find_schedule(schedule).placement == Placement::v ? 2 : 1;
    for (const int m : {1, 2, 3, 4, 5, 7, 8, 9})
      EXPECT_EQ(refusal(schedule, {4, chunks, m}), "no Error") << schedule << " m=" << m;
  }
}

TEST(Refusal, OfAShapeNamesTheRuleAndTheNearestThatIsLegal) {
  EXPECT_EQ(refusal("gpipe", {4, 2, 8}),
            "schedule=gpipe has 1 chunk on each rank, not 2; use chunks=1");
  EXPECT_EQ(refusal("zb-v", {4, 1, 8}),
            "schedule=zb-v has 2 chunks on each rank, not 1; use chunks=2");
  EXPECT_EQ(refusal("interleaved", {4, 2, 10}),
            "schedule=interleaved: 10 micro-batches in rounds of group=4 leave a round of 2, which "
            "does not fill 4 ranks; use 8 or 12 micro-batches, or group=5");
  EXPECT_EQ(refusal("interleaved-zb", {4, 2, 3}),
            "schedule=interleaved-zb: a round of group=4 wants as many micro-batches, not 3; use 4 "
            "micro-batches");
  EXPECT_EQ(refusal("interleaved", {4, 2, 8, 3}),
            "schedule=interleaved: rounds of group=3 micro-batches do not fill 4 ranks; use "
            "group=4 or more");
  EXPECT_EQ(refusal("interleaved", {4, 2, 6, 8}),
            "schedule=interleaved: a round of group=8 wants as many micro-batches, not 6; use 8 "
            "micro-batches, or group=6");
  EXPECT_EQ(refusal("dualpipe-v", {4, 2, 7}),
            "schedule=dualpipe-v wants at least twice as many micro-batches as its 4 ranks, not 7; "
            "use 8 or more");
  EXPECT_EQ(refusal("1f1b", {4, 1, 0}),
            "schedule=1f1b wants at least 1 rank, chunk and micro-batch and a group of 0 or more, "
            "not 4, 1, 0 and 0");
}

TEST(Refusal, KeepsRoundsThatFillTheRanks) {
  EXPECT_EQ(refusal("interleaved", {4, 2, 10, 5}), "no Error");
  EXPECT_EQ(refusal("interleaved", {4, 2, 10, 6}), "no Error");
  EXPECT_NE(refusal("interleaved", {4, 2, 10, 7}), "no Error");
  EXPECT_EQ(refusal("interleaved", {4, 2, 10, 10}), "no Error");
}

TEST(Placement, PutsEachVirtualStageInOnePlace) {
  for (int p = 1; p <= 8; ++p) {
    for (const auto& [placement, chunks] :
         {std::pair{Placement::linear, 1}, {Placement::looped, 3}, {Placement::v, 2}}) {
      std::set<int> stages;
      for (int rank = 0; rank < p; ++rank) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const int stage = stage_of(placement, rank, chunk, p);
          EXPECT_EQ(place_of(placement, stage, p), (RankChunk{rank, chunk}));
          stages.insert(stage);
        }
      }
      EXPECT_EQ(static_cast<int>(stages.size()), p * chunks);
      EXPECT_EQ(*stages.rbegin(), p * chunks - 1);
    }
  }
  EXPECT_EQ(stage_of(Placement::looped, 1, 2, 4), 9);
  EXPECT_EQ(stage_of(Placement::v, 0, 1, 4), 7);
  EXPECT_EQ(stage_of(Placement::v, 3, 1, 4), 4);
}

TEST(FindSchedule, NamesTheNearestKnownOne) {
  EXPECT_EQ(find_schedule("1f1b").name, "1f1b");
  EXPECT_EQ(message_of([] { find_schedule("gpip"); }),
            "schedule=gpip is not known; did you mean 'gpipe'? Known: gpipe, 1f1b, interleaved, "
            "zb-h1, interleaved-zb, zb-v, dualpipe-v");
}

}  // namespace
}  // namespace mb
