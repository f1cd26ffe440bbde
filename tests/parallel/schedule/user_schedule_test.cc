#include "parallel/schedule/user_schedule.h"

#include <gtest/gtest.h>

#include "parallel/plan/text.h"
#include "tests/support/error.h"
#include "tests/support/shapes.h"

namespace mb {
namespace {

std::string refusal(std::string_view text) {
  return message_of([&] { parse_schedule(text, "my.txt"); });
}

TEST(UserSchedule, ReadsWhatScheduleTextPrints) {
  for (const Schedule& schedule : schedules()) {
    for (const PipelineShape& shape : legal_shapes(schedule, 5)) {
      const auto slots = slots_of(schedule, shape);
      const std::string text = schedule_text(slots, schedule.placement);
      const UserSchedule read = parse_schedule(text, "text");
      ASSERT_EQ(read.slots, slots) << shape_text(schedule.name, shape);
      EXPECT_EQ(read.placement, schedule.placement);
      EXPECT_EQ(read.chunks, shape.chunks);
      EXPECT_EQ(read.micro_batches, shape.micro_batches);
      EXPECT_EQ(schedule_text(read.slots, read.placement), text);
    }
  }
}

TEST(UserSchedule, TakesCommentsAndAnySpaces) {
  const UserSchedule read = parse_schedule(
      "# mine\n\n  placement linear # one chunk\r\nstage 0 F0 F1\tB0 B1#end\nstage 1 F0 B0 F1 B1",
      "my.txt");
  EXPECT_EQ(schedule_text(read.slots, read.placement),
            "stage 0   F0 F1 B0 B1\n"
            "stage 1   F0 B0 F1 B1\n");
}

TEST(UserSchedule, OfSeveralChunksIsLoopedUnlessItSaysOtherwise) {
  const std::string stages =
      "stage 0 F0 F0.1 B0.1 B0\n"
      "stage 1 F0 F0.1 B0.1 B0\n";
  EXPECT_EQ(parse_schedule(stages, "my.txt").placement, Placement::looped);
  EXPECT_EQ(parse_schedule("placement v\n" + stages, "my.txt").placement, Placement::v);
  EXPECT_EQ(parse_schedule("stage 0 F0 B0", "my.txt").placement, Placement::linear);
}

TEST(UserSchedule, RefusesWhatIsNoSlotByLine) {
  for (const char* word :
       {"X0", "F", "F-1", "F0.", "F0.x", "F0x", "F1000000", "F99999999999", "0", "F0.1.2"}) {
    EXPECT_EQ(refusal(cat("# mine\nstage 0 F1 ", word)),
              cat("my.txt:2: stage 0 slot 1 '", word,
                  "' is no slot; write F, B, I or W, a micro-batch and, for a chunk above 0, a dot "
                  "and the chunk, such as F0 or B3.1"));
  }
}

TEST(UserSchedule, RefusesLinesOutOfPlace) {
  EXPECT_EQ(refusal(""), "my.txt: no stage in it; write lines such as 'stage 0 F0 B0'");
  EXPECT_EQ(refusal("stage 0 F0 B0\nstage 2 F0 B0"),
            "my.txt:2: stage 2 is out of turn; the next line is that of stage 1");
  EXPECT_EQ(refusal("rank 0 F0 B0"),
            "my.txt:1: 'rank' begins no line; write 'stage 0' and its slots, or 'placement NAME' "
            "first of all");
  EXPECT_EQ(refusal("stage 0 F0 B0\nplacement v"),
            "my.txt:2: write 'placement' once, before any stage");
  EXPECT_EQ(refusal("placement loped\nstage 0 F0 B0"),
            "my.txt:1: placement loped is not known; did you mean 'looped'? Known: linear, looped, "
            "v");
  EXPECT_EQ(refusal("placement v 2"), "my.txt:1: '2' comes after the placement; leave it out");
}

TEST(UserSchedule, RefusesChunksThatDoNotFitThePlacement) {
  EXPECT_EQ(refusal("placement linear\nstage 0 F0 F0.1 B0.1 B0"),
            "my.txt: placement linear has 1 chunk on each stage, not 2; use placement looped, or v "
            "for 2 chunks");
  EXPECT_EQ(refusal("placement v\nstage 0 F0 B0"),
            "my.txt: placement v has 2 chunks on each stage, not 1; use placement linear");
}

TEST(UserSchedule, RefusesSlotsThatAreNoStepByLine) {
  EXPECT_EQ(refusal("stage 0 F0 B0\nstage 1 B0 F0"),
            "my.txt:2: stage 1 slot 0 'B0': it needs F0 before it");
  EXPECT_EQ(refusal("stage 0 F0 B0 F1 B1\n\nstage 1 F1 B1 F0 B0"),
            "my.txt:1: stage 0 never gets further, as slot 1 'B0' waits for B0 of stage 1, and "
            "stage 1 slot 0 'F1' waits for F1 of stage 0; let each of them run after what it waits "
            "for");
  EXPECT_EQ(refusal("stage 0 F0 B0\nstage 1 F0 B0 F2 B2"),
            "my.txt:1: stage 0 never runs F1; add it");
}

}  // namespace
}  // namespace mb
