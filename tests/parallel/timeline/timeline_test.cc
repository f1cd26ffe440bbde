#include "parallel/timeline/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/strategy/step.h"
#include "tests/support/error.h"

namespace mb {
namespace {

class TimelineFile : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "timeline_test." + std::to_string(getpid());

  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  // What is wrong with the file, without its path.
  std::string error_of(const std::string& text) {
    write(text);
    const std::string message = message_of([&] { load_timeline(path_); });
    return message.starts_with(path_) ? message.substr(path_.size()) : message;
  }
};

Timeline two_lanes() {
  return {.lanes = {{{0, 5}, {5, 5}, {7, 9'000'000'000'000'000'000}}, {{-3, 4}}},
          .lane_of_rank = {0, 0, 1, 1}};
}

TEST_F(TimelineFile, HoldsWhatWasSaved) {
  save(two_lanes(), path_);
  EXPECT_EQ(load_timeline(path_), two_lanes());
}

TEST_F(TimelineFile, IsTextWithASpanALine) {
  save(two_lanes(), path_);
  EXPECT_EQ(read(),
            "meshbench-timeline 1 ranks 4 lanes 2 spans 4\n"
            "lane_of_rank 0 0 1 1\n"
            "lane instruction start_ns end_ns\n"
            "0 0 0 5\n0 1 5 5\n0 2 7 9000000000000000000\n1 0 -3 4\n");
}

TEST_F(TimelineFile, HoldsASimulatedStep) {
  const Plan plan = plan_step(find_model("gpt-tiny"), Mesh::parse("dp2.pp2"), {.micro_batches = 3});
  const auto cost = make_roofline_cost(plan, find_machine("h100x8"));
  const Timeline timeline = simulate(plan, *cost);
  save(timeline, path_);
  EXPECT_EQ(load_timeline(path_), timeline);
}

TEST_F(TimelineFile, NamesTheLineThatCannotBeRead) {
  const std::string head = "meshbench-timeline 1 ranks 1 lanes 1 spans 2\nlane_of_rank 0\nlane\n";
  EXPECT_EQ(error_of(head + "0 0 1 2\n0 1 2 3\n"), "no Error");
  EXPECT_EQ(error_of("timeline 1\n"),
            ":1: \"timeline 1\" is not the header of a meshbench timeline, version 1");
  EXPECT_EQ(error_of("meshbench-timeline 2 ranks 1 lanes 1 spans 2\n"),
            ":1: \"meshbench-timeline 2 ranks 1 lanes 1 spans 2\" is not the header of a meshbench "
            "timeline, version 1");
  EXPECT_EQ(error_of("meshbench-timeline 1 ranks 2 lanes 1 spans 0\nlane_of_rank 0\nlane\n"),
            ":2: \"lane_of_rank 0\" is not one lane for each rank");
  EXPECT_EQ(error_of("meshbench-timeline 1 ranks 1 lanes 1 spans 0\nlane_of_rank 1\nlane\n"),
            ":2: \"lane_of_rank 1\" is not a list of lanes");
  for (const char* line :
       {"0 0 one 2", "1 0 1 2", "0 1 1 2", "0 0 2 1", "0 0 1", "0 0 1 2 3", ""}) {
    EXPECT_EQ(error_of(head + line + "\n0 1 2 3\n"),
              cat(":4: \"", line, "\" is not the next span of a lane"));
  }
}

TEST_F(TimelineFile, NoticesThatItIsCutOff) {
  EXPECT_EQ(error_of(""), ":1: the file ends here, in its header");
  EXPECT_EQ(error_of("meshbench-timeline 1 ranks 1 lanes 1 spans 0\n"),
            ":2: the file ends here, in its header");
  EXPECT_EQ(
      error_of("meshbench-timeline 1 ranks 1 lanes 1 spans 2\nlane_of_rank 0\nlane\n0 0 1 2\n"),
      ":5: the file ends here, with 1 of its 2 spans");
}

TEST_F(TimelineFile, HasToBeThereAndWritable) {
  EXPECT_EQ(message_of([] { load_timeline("/no/such/file"); }),
            "cannot read timeline /no/such/file");
  EXPECT_EQ(message_of([] { save(two_lanes(), "/no/such/file"); }),
            "cannot write timeline /no/such/file");
}

TEST(Timeline, WindowSpansAllLanes) {
  EXPECT_EQ((Timeline{.lanes = {{{3, 5}, {6, 9}}, {{2, 4}}}}.window()), (Span{2, 9}));
  EXPECT_EQ(Timeline{}.window(), Span{});
}

TEST(Timeline, RanksFindTheirLane) {
  const Timeline timeline = two_lanes();
  EXPECT_EQ(&timeline.of(1), &timeline.lanes[0]);
  EXPECT_EQ(&timeline.of(2), &timeline.lanes[1]);
}

TEST(EmptyTimeline, HasALaneARankOfTheSizeOfItsProgram) {
  const Plan plan = plan_step(find_model("gpt-tiny"), Mesh::parse("dp2.pp2"), {.micro_batches = 2});
  const Timeline timeline = empty_timeline(plan);
  ASSERT_EQ(timeline.lanes.size(), 4u);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(timeline.of(rank), std::vector<Span>(plan.program_of(rank).instructions.size()));
}

}  // namespace
}  // namespace mb
