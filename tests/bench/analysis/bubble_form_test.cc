#include "bench/analysis/bubble_form.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::optional<BubbleForm> form_of(const std::string& schedule, int stages, int micro_batches,
                                  const PassTimes& times = {}) {
  const StepShape shape = small_shape(cat("pp", stages), schedule, micro_batches);
  return bubble_form(shape.mesh, shape.options, times);
}

TEST(BubbleForm, OfOneFOneBIsThePublishedShareForAnyTimes) {
  for (const PassTimes times : {PassTimes{}, PassTimes{2, 5, 0}}) {
    const auto form = form_of("1f1b", 4, 8, times);
    EXPECT_DOUBLE_EQ(form->of_window(), 3.0 / 11);
    EXPECT_DOUBLE_EQ(form->of_ideal(), 3.0 / 8);
  }
  EXPECT_EQ(form_of("gpipe", 1, 3)->of_window(), 0);
}

TEST(BubbleForm, OfMoreChunksAndSplitBackwardsIsSmaller) {
  EXPECT_DOUBLE_EQ(form_of("interleaved", 4, 8)->idle, 9.0 / 2);
  EXPECT_DOUBLE_EQ(form_of("zb-h1", 4, 8)->idle, 3);
  EXPECT_DOUBLE_EQ(form_of("zb-h1", 4, 8, {3, 4, 2})->idle, 3 * (3 + 4 - 2));
  EXPECT_DOUBLE_EQ(form_of("zb-v", 4, 8)->idle, 1.5);
}

TEST(BubbleForm, IsMissingWithItsReason) {
  const auto options = [](const char* schedule) {
    return StepOptions{.schedule = schedule, .micro_batches = 8};
  };
  EXPECT_FALSE(form_of("zb-v", 4, 8, {3, 4, 2}).has_value());
  EXPECT_EQ(no_bubble_form(options("zb-v")), "the closed form of schedule zb-v is for F=I=W alone");
  StepOptions user = options("@mine.txt");
  user.user_schedule = parse_schedule("stage 0 F0 B0", "mine.txt");
  EXPECT_FALSE(bubble_form(Mesh(), user).has_value());
  EXPECT_EQ(bubble_source(user), "no closed form for schedule @mine.txt");
  EXPECT_EQ(bubble_source(options("1f1b")),
            "idle of a rank (p-1)(F+I+W): Narayanan et al., SC 2021, section 2.2");
}

TEST(BubblePhases, OfEveryStageSumToTheSameBubble) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(bubble_phases(schedule, 4, 6, stage, 3, 5)->sum(), 3 * (3 + 5));
}

TEST(BubblePhases, AreKnownOfGPipeAndOfOneFOneBThatFillsItsStages) {
  EXPECT_FALSE(bubble_phases("1f1b", 4, 3, 0, 1, 2).has_value());
  EXPECT_FALSE(bubble_phases("zb-h1", 4, 8, 0, 1, 2).has_value());
}

}  // namespace
}  // namespace mb
