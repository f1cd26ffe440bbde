// The table is nccl-tests', so that what reads that reads this: held by the rules of known readers.
#include "bench/coll/text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/bench/coll/synthetic.h"

namespace mb {
namespace {

struct Printed {
  std::string text;
  std::vector<std::string> lines;
};

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

// A whole table as the verb prints it, of synthetic times.
Printed table(CollConfig config, const Scene& scene = {}, double slower = 1) {
  if (config.sizes.empty()) config.sizes = {1024, 1 << 20};
  std::vector<MeasuredPoint> all;
  const std::vector<Point> points = tables_of(config)[0];
  Printed printed{.text = table_head(config, points, {})};
  for (const Point& point : points) {
    Scene own = scene;
    own.transfer_ns *= slower;
    PointResult result = result_of(config, point, {own});
    PointSummary summary = summarize(config, result, {});
    all.push_back({std::move(result), std::move(summary)});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool both = i + 1 < all.size() && all[i + 1].result.point.in_place;
    const bool in = all[i].result.point.in_place;
    printed.text += table_rows(config, in ? nullptr : &all[i],
                               in     ? &all[i]
                               : both ? &all[i + 1]
                                      : nullptr);
    i += both;
  }
  printed.text += table_foot(all);
  std::istringstream in(printed.text);
  for (std::string line; std::getline(in, line);) printed.lines.push_back(line);
  return printed;
}

std::string last_row(const Printed& printed) {
  std::string last;
  for (const std::string& line : printed.lines) {
    if (!line.starts_with('#')) last = line;
  }
  return last;
}

TEST(Text, HeadSaysThatRanksWaitForCores) {
  CollConfig config;
  config.sizes = {1024};
  const std::vector<Point> points = tables_of(config)[0];
  const std::string crowded = table_head(config, points, {.cores = {64, 2}});
  EXPECT_NE(crowded.find("# 64 ranks share 2 cores: times include waiting for a core\n"),
            std::string::npos);
  EXPECT_EQ(table_head(config, points, {.cores = {2, 2}}).find("waiting"), std::string::npos);
}

TEST(Text, RowsHaveTheColumnsOfNcclTestsByteForByte) {
  CollConfig config;
  config.sizes = {8589934592};
  const std::string row = last_row(table(config, {.transfer_ns = 47.5e6, .noise = 0}));
  EXPECT_EQ(row.substr(0, 54), "  8589934592    2147483648     float     sum      -1  ");
  EXPECT_EQ(row.size(), std::string("  8589934592    2147483648     float     sum      -1    47535"
                                    "  180.71  338.82      0    47743  179.92  337.35      0")
                            .size());
  EXPECT_EQ(words(row).size(), 13u);
  for (const std::size_t end : {61u, 69u, 77u, 84u}) EXPECT_NE(row[end - 1], ' ') << end;
}

TEST(Text, HeadsOfColumnsAreThoseOfNcclTests) {
  const Printed printed = table({});
  bool found = false;
  for (std::size_t i = 0; i + 1 < printed.lines.size(); ++i) {
    if (words(printed.lines[i]) !=
        std::vector<std::string>{"#", "size", "count", "type", "redop", "root", "time", "algbw",
                                 "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"})
      continue;
    found = true;
    EXPECT_NE(printed.lines[i - 1].find("out-of-place"), std::string::npos);
    EXPECT_EQ(printed.lines[i],
              "#       size         count      type   redop    root     time   algbw   busbw "
              "#wrong     time   algbw   busbw #wrong");
    EXPECT_EQ(printed.lines[i + 1],
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)      "
              "      (us)  (GB/s)  (GB/s)       ");
  }
  EXPECT_TRUE(found);
}

TEST(Text, TimeHasAtMostSevenCharacters) {
  EXPECT_EQ(time_text(0.5), "0.50");
  EXPECT_EQ(time_text(99.994), "99.99");
  EXPECT_EQ(time_text(135.84), "135.8");
  EXPECT_EQ(time_text(9999.94), "9999.9");
  EXPECT_EQ(time_text(12646.2), "12646");
  EXPECT_EQ(time_text(9999999), "9999999");
  EXPECT_EQ(time_text(12345678), "1.2e+07");
  for (double us = 1e-3; us < 1e12; us *= 1.7) EXPECT_LE(time_text(us).size(), 7u) << us;
}

// SuperBench: the place of a column counted from the end of the line with "time" and "busbw".
TEST(Text, ColumnsCountedFromTheRightAreTheRightOnes) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    CollConfig config;
    config.dtypes = {type};
    const Printed printed = table(config, {}, 1e6);
    std::vector<std::string> head;
    int rows = 0;
    for (const std::string& line : printed.lines) {
      const std::vector<std::string> cells = words(line);
      if (line.starts_with('#')) {
        if (line.find("time  ") != std::string::npos && line.find("busbw") != std::string::npos)
          head = cells;
        continue;
      }
      const auto place = std::find(head.begin(), head.end(), "busbw") - head.end();
      const double time = std::stod(cells[cells.size() - 8]),
                   busbw = std::stod(cells[cells.size() + place]);
      EXPECT_EQ(place, -6);
      EXPECT_NEAR(busbw, std::stod(cells[0]) / time * 1e-3, 0.006 + 0.05 * busbw);
      ++rows;
    }
    EXPECT_EQ(rows, 2);
  }
}

// Azure's node checks: word 5, from 0, of the line with "bandwidth".
TEST(Text, OneLineSpeaksOfBandwidthAndItsFifthWordIsTheMean) {
  const Printed printed = table({}, {.late = 1, .late_ns = 1e6});
  std::vector<std::string> found;
  double sum = 0;
  for (const std::string& line : printed.lines) {
    if (line.find("bandwidth") != std::string::npos) found.push_back(line);
    if (!line.starts_with('#')) sum += std::stod(words(line)[7]) + std::stod(words(line)[11]);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(std::stod(words(found[0])[5]), sum / 4, 0.01);
}

// AWS' recipes: tail -n 3 | head -n 1 is the line of out-of-bounds values; the row before it is the
// last.
TEST(Text, LastRowIsFollowedByTheThreeClosingLinesAlone) {
  const Printed printed = table({}, {.late = 1, .late_ns = 1e6});
  const std::size_t n = printed.lines.size();
  EXPECT_EQ(printed.lines[n - 1], "#");
  EXPECT_EQ(printed.lines[n - 2].substr(0, 25), "# Avg bus bandwidth    : ");
  EXPECT_EQ(printed.lines[n - 3], "# Out of bounds values : 0 OK");
  EXPECT_EQ(words(printed.lines[n - 4])[0], "1048576");
  EXPECT_EQ(words(printed.lines[n - 4]).size(), 13u);
}

TEST(Text, WhatIsRemarkableStandsBeforeItsRow) {
  const Printed printed = table({}, {.late = 1, .late_ns = 2e6});
  EXPECT_NE(printed.text.find("# 1024 B out of place: late rank 1"), std::string::npos);
}

TEST(Text, OperationThatCannotBeInPlaceSaysSo) {
  CollConfig config;
  config.operations = {Operation::all_to_all};
  const std::vector<std::string> cells = words(last_row(table(config)));
  EXPECT_EQ(cells.size(), 13u);
  EXPECT_EQ(cells[3], "none");
  EXPECT_EQ(cells[4], "-1");
  for (std::size_t i = 9; i < 13; ++i) EXPECT_EQ(cells[i], "N/A");
}

TEST(Text, OneRankHasNoBusBandwidth) {
  CollConfig config;
  config.mesh = Mesh::parse("1");
  const Printed printed = table(config);
  EXPECT_EQ(words(last_row(printed))[7], "N/A");
  EXPECT_NE(printed.text.find("busbw is not defined"), std::string::npos);
  EXPECT_NE(printed.text.find("# Avg bus bandwidth    : N/A"), std::string::npos);
}

TEST(Text, WrongElementsAreCountedAndDescribed) {
  CollConfig config;
  config.sizes = {1024};
  const Point point{.bytes = 1024};
  PointResult result = result_of(config, point, {{}});
  result.groups[0].wrong_rank = 1;
  result.groups[0].findings = {.checked = 512,
                               .wrong = 3,
                               .full = 1,
                               .operation = 7,
                               .index = 42,
                               .got = 0x40000000,
                               .expected = 0x3f800000};
  PointSummary summary = summarize(config, result, {});
  const MeasuredPoint measured{std::move(result), std::move(summary)};
  const std::string rows = table_rows(config, &measured, nullptr);
  EXPECT_NE(rows.find("3 wrong of 512 elements checked; the first on rank 1, operation 7, element "
                      "42: got 0x40000000 (2), expected 0x3f800000 (1)"),
            std::string::npos)
      << rows;
  EXPECT_NE(table_foot({measured}).find("# Out of bounds values : 3 FAILED"), std::string::npos);
}

TEST(Text, GroupsAreNamedAndTheSlowestToo) {
  CollConfig config;
  config.mesh = Mesh::parse("dp2.tp2");
  config.axes = {group_of(Axis::tp)};
  const Printed printed = table(config);
  EXPECT_NE(printed.text.find("group 1: ranks 2 3"), std::string::npos);
  EXPECT_NE(printed.text.find("slowest group"), std::string::npos);
}

}  // namespace
}  // namespace mb
