#include "bench/coll/tuning.h"

#include <gtest/gtest.h>

#include "bench/coll/text.h"
#include "tests/bench/coll/synthetic.h"
#include "tests/support/error.h"

namespace mb {
namespace {

// Known to 2 %.
TimedRow timed(std::int64_t bytes, Algorithm algorithm, double ns, int members = 4,
               Operation operation = Operation::all_reduce) {
  return {operation, members, bytes, algorithm, ns, 0.98 * ns, 1.02 * ns};
}

using Steps = std::vector<TunedStep>;

TEST(Tuning, EachSizeHasItsFastestAndEqualNeighboursOneStep) {
  const std::vector<TunedOperation> table = tune({
      timed(1024, Algorithm::ring, 900),
      timed(1024, Algorithm::tree, 300),
      timed(4096, Algorithm::ring, 950),
      timed(4096, Algorithm::tree, 500),
      timed(65536, Algorithm::ring, 2000),
      timed(65536, Algorithm::tree, 9000),
  });
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].members, 4);
  EXPECT_EQ(table[0].steps, (Steps{{1024, Algorithm::tree}, {65536, Algorithm::ring}}));
}

TEST(Tuning, TheSmallerNumberedStaysWhereIntervalsMeet) {
  EXPECT_EQ(tune({timed(1024, Algorithm::own, 103), timed(1024, Algorithm::tree, 100)})[0].steps,
            (Steps{{1024, Algorithm::own}}));
  EXPECT_EQ(tune({timed(1024, Algorithm::own, 105), timed(1024, Algorithm::tree, 100)})[0].steps,
            (Steps{{1024, Algorithm::tree}}));
  // Of those that meet the fastest's, not of those that meet each other's.
  EXPECT_EQ(tune({timed(1024, Algorithm::own, 106), timed(1024, Algorithm::ring, 103),
                  timed(1024, Algorithm::tree, 100)})[0]
                .steps,
            (Steps{{1024, Algorithm::ring}}));
}

TEST(Tuning, RowsOfGroupsAndPlacesCountByTheirMeans) {
  EXPECT_EQ(tune({timed(1024, Algorithm::own, 100), timed(1024, Algorithm::own, 300),
                  timed(1024, Algorithm::ring, 150), timed(1024, Algorithm::ring, 160)})[0]
                .steps,
            (Steps{{1024, Algorithm::ring}}));
}

TEST(Tuning, OperationsAndGroupSizesHaveTablesOfTheirOwn) {
  const std::vector<TunedOperation> table = tune({
      timed(1024, Algorithm::ring, 100, 2),
      timed(1024, Algorithm::ring, 100, 8),
      timed(1024, Algorithm::ring, 100, 2, Operation::all_gather),
  });
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[1].members, 8);
  EXPECT_EQ(table[2].operation, Operation::all_gather);
}

TEST(Tuning, AnAlgorithmThatTheOperationLacksIsNotChosen) {
  EXPECT_EQ(tune({timed(0, Algorithm::own, 900, 4, Operation::barrier),
                  timed(0, Algorithm::ring, 100, 4, Operation::barrier)})[0]
                .steps,
            (Steps{{0, Algorithm::own}}));
  EXPECT_TRUE(tune({timed(0, Algorithm::ring, 100, 4, Operation::barrier)}).empty());
}

Tuning tuning() {
  return {.mode = "threads",
          .machine = "a processor",
          .library = "none",
          .case_line = "op=all_reduce 'link=intra:4GB/s,2us;inter:1GB/s,2us'",
          .operations = {{Operation::all_reduce,
                          2,
                          {{1024, Algorithm::tree}, {65536, Algorithm::ring}}},
                         {Operation::all_reduce, 8, {{1024, Algorithm::two_level}}},
                         {Operation::broadcast, 2, {{0, Algorithm::own}}}},
          .origin = "tuned.json"};
}

TEST(Tuning, APointTakesTheStepBelowItOfTheNearestGroupSize) {
  const auto at = [](int members, std::int64_t bytes) {
    return algorithm_for(tuning(), Operation::all_reduce, members, bytes);
  };
  EXPECT_EQ(at(2, 65535), Algorithm::tree);
  EXPECT_EQ(at(2, 65536), Algorithm::ring);
  EXPECT_EQ(at(2, std::int64_t{1} << 40), Algorithm::ring);
  EXPECT_EQ(at(2, 8), Algorithm::tree);
  EXPECT_EQ(at(5, 65536), Algorithm::ring);
  EXPECT_EQ(at(6, 65536), Algorithm::two_level);
  EXPECT_EQ(at(64, 8), Algorithm::two_level);
  const std::string message =
      message_of([] { algorithm_for(tuning(), Operation::all_gather, 2, 8); });
  for (const char* part : {"algorithm=@tuned.json", "all_gather", "--tune"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Tuning, AFileGivesBackWhatWasWritten) {
  const Tuning written = tuning(), read = tuning_from_json(to_json(written), "tuned.json");
  EXPECT_EQ(read.operations, written.operations);
  EXPECT_EQ(read.mode, written.mode);
  EXPECT_EQ(read.machine, written.machine);
  EXPECT_EQ(read.library, written.library);
  EXPECT_EQ(read.case_line, written.case_line);
  EXPECT_EQ(to_json(read), to_json(written));
}

TEST(Tuning, OtherFilesAreRefused) {
  const std::string good = to_json(tuning());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::pair<std::string, std::vector<const char*>> cases[] = {
      {"no JSON", {"parse error"}},
      {"[]", {"schema", "meshbench-tuning/1"}},
      {"{\"name\": \"h100x8\"}", {"schema is null", "--tune"}},
      {with("tuning/1", "tuning/2"), {"meshbench-tuning/2", "meshbench-tuning/1"}},
      {with("\"tree\"", "\"treee\""), {"treee", "did you mean"}},
      {with("\"all_reduce\"", "\"allreduce\""), {"allreduce", "did you mean"}},
      {with("65536", "1024"), {"all_reduce of 2 members", "from_bytes 1024"}},
      {with("\"members\": 2", "\"members\": 0"), {"0 members"}},
      {with("\"members\": 2", "\"members\": \"two\""), {"type"}},
      {with("\"mode\"", "\"moode\""), {"mode"}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string message = message_of([&] { tuning_from_json(text, "some.json"); });
    EXPECT_NE(message.find("some.json"), std::string::npos) << message;
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

TEST(Tuning, PointsOfACaseAreOfTheAlgorithmsOfTheTable) {
  CollConfig config;
  config.mesh = Mesh::parse("dp2");
  config.sizes = {1024, 65536};
  config.places = Places::out;
  config.tuning = tuning();
  const std::vector<Point> points = tables_of(config)[0];
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].algorithm, Algorithm::tree);
  EXPECT_EQ(points[1].algorithm, Algorithm::ring);
}

TEST(Tuning, MeasuredPointsBecomeATableByTheirSamples) {
  CollConfig config;
  config.mesh = Mesh::parse("dp2.tp2");
  config.axes = {group_named("tp", "axis")};
  config.sizes = {1024};
  config.algorithms = {Algorithm::own, Algorithm::ring, Algorithm::tree};
  std::vector<MeasuredPoint> all;
  const std::vector<Point> points = tables_of(config)[0];
  for (const Point& point : points) {
    const double transfer_ns = point.algorithm == Algorithm::ring ? 20'000 : 50'000;
    PointResult result = result_of(config, point, {{.transfer_ns = transfer_ns}});
    PointSummary summary = summarize(config, result, {});
    all.push_back({std::move(result), std::move(summary)});
  }
  EXPECT_EQ(timed_rows(all).size(), 3u * 2 * 2);  // algorithms, places, groups
  const std::vector<TunedOperation> table = tune(timed_rows(all));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0].members, 2);
  EXPECT_EQ(table[0].steps, (Steps{{1024, Algorithm::ring}}));
}

}  // namespace
}  // namespace mb
