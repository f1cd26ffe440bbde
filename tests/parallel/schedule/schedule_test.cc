#include "parallel/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/plan/text.h"
#include "tests/support/error.h"

namespace mb {
namespace {

TEST(GPipe, RunsAllForwardsThenAllBackwards) {
  EXPECT_EQ(to_text(gpipe(0, 1, 1)), "F0 B0");
  EXPECT_EQ(to_text(gpipe(0, 4, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(to_text(gpipe(3, 4, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(to_text(gpipe(1, 2, 4)), "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST(OneFOneB, LastStageAlternatesFromTheStart) {
  EXPECT_EQ(to_text(one_f_one_b(1, 2, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(to_text(one_f_one_b(3, 4, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(to_text(one_f_one_b(0, 1, 2)), "F0 B0 F1 B1");
}

TEST(OneFOneB, FillsThePipeThenAlternatesThenDrains) {
  EXPECT_EQ(to_text(one_f_one_b(0, 2, 4)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(to_text(one_f_one_b(0, 4, 8)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(to_text(one_f_one_b(1, 4, 8)), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(to_text(one_f_one_b(2, 4, 8)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
}

TEST(OneFOneB, WithFewerMicroBatchesThanStagesEarlyStagesRunAllForwardsFirst) {
  EXPECT_EQ(to_text(one_f_one_b(0, 4, 1)), "F0 B0");
  EXPECT_EQ(to_text(one_f_one_b(0, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(to_text(one_f_one_b(1, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(to_text(one_f_one_b(2, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(to_text(one_f_one_b(3, 4, 2)), "F0 B0 F1 B1");
}

// Largest number of micro-batches that have gone forward and not yet back.
int in_flight(const std::vector<Slot>& slots) {
  int now = 0, most = 0;
  for (const Slot& slot : slots) {
    now += slot.pass == Pass::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

TEST(Schedules, RunEveryMicroBatchForwardOnceAndThenBackwardOnce) {
  for (const Schedule& schedule : schedules()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int stage = 0; stage < stages; ++stage) {
        for (int m = 1; m <= 2 * stages + 1; ++m) {
          const std::vector<Slot> slots = schedule.order(stage, stages, m);
          SCOPED_TRACE(testing::Message() << schedule.name << " stage " << stage << "/" << stages
                                          << ": " << to_text(slots));
          ASSERT_EQ(slots.size(), 2u * m);
          int next_forward = 0, next_backward = 0;
          for (const Slot& slot : slots) {
            if (slot.pass == Pass::forward) {
              EXPECT_EQ(slot.micro_batch, next_forward++);
            } else {
              EXPECT_EQ(slot.pass, Pass::backward);
              EXPECT_EQ(slot.micro_batch, next_backward++);
              EXPECT_LE(next_backward, next_forward);
            }
          }
          EXPECT_EQ(next_forward, m);
          EXPECT_EQ(next_backward, m);
        }
      }
    }
  }
}

TEST(Schedules, HoldAsManyMicroBatchesInFlightAsTheirPapersSay) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      for (int m = 1; m <= 2 * stages; ++m) {
        EXPECT_EQ(in_flight(gpipe(stage, stages, m)), m);
        EXPECT_EQ(in_flight(one_f_one_b(stage, stages, m)), std::min(m, stages - stage));
      }
    }
  }
}

TEST(FindSchedule, NamesTheNearestKnownOne) {
  EXPECT_EQ(find_schedule("1f1b").order, one_f_one_b);
  EXPECT_EQ(find_schedule("gpipe").order, gpipe);
  const std::string message = message_of([] { find_schedule("gpip"); });
  EXPECT_NE(message.find("schedule=gpip is not known; did you mean 'gpipe'? Known: gpipe, 1f1b"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace mb
