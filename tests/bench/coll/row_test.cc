#include "bench/coll/row.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/bench/coll/synthetic.h"
#include "tests/support/error.h"

namespace mb {
namespace {

const CollConfig& config() {
  static const CollConfig config = [] {
    CollConfig c;
    c.mesh = Mesh::parse("dp2.tp2");
    return c;
  }();
  return config;
}

std::vector<Json> rows(const Point& point, bool raw = false) {
  PointResult result = result_of(config(), point, {{}});
  PointSummary summary = summarize(config(), result, {});
  return coll_rows(config(), {std::move(result), std::move(summary)}, {},
                   {.suite = "coll", .case_line = "op=all_reduce"}, raw);
}

TEST(CollRow, EveryGroupHasARowOfItsOwn) {
  const std::vector<Json> two = rows({.group = group_of(Axis::tp), .bytes = 1024});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1]["coll"]["ranks"], Json({2, 3}));
  EXPECT_NE(two[0]["key"], two[1]["key"]);
  EXPECT_EQ(two[0]["suite"], "coll");
  EXPECT_EQ(two[0]["mode"], "threads");
}

TEST(CollRow, RatesFollowFromTimeAndSizeInTheJsonToo) {
  const Json row = rows({.bytes = 1 << 20})[0];
  const double time = row["metrics"]["completion_s"]["value"];
  EXPECT_DOUBLE_EQ(row["metrics"]["algbw_bytes_per_s"]["value"].get<double>(), (1 << 20) / time);
  EXPECT_DOUBLE_EQ(row["metrics"]["busbw_bytes_per_s"]["value"].get<double>(),
                   row["coll"]["factor"].get<double>() * (1 << 20) / time);
  EXPECT_DOUBLE_EQ(row["coll"]["completion"]["p50_s"].get<double>(), time);
}

TEST(CollRow, WhatDoesNotExistIsNullWithAReason) {
  const Json row = rows({.operation = Operation::barrier})[0];
  EXPECT_TRUE(row["coll"]["bytes"].is_null());
  EXPECT_TRUE(row["coll"]["dtype"].is_null());
  EXPECT_TRUE(row["metrics"]["busbw_bytes_per_s"]["value"].is_null());
  EXPECT_EQ(row["metrics"]["busbw_bytes_per_s"]["reason"], "the operation moves no bytes");
}

TEST(CollRow, RawHoldsEveryOperation) {
  EXPECT_FALSE(rows({.bytes = 1024})[0]["coll"].contains("samples_s"));
  EXPECT_EQ(rows({.bytes = 1024}, true)[0]["coll"]["samples_s"].size(), 60u);
}

TEST(CollRow, FilesHoldEveryRowAsSoonAsItIsThere) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / cat("coll_row_", getpid());
  std::filesystem::create_directories(folder);
  JsonLines lines(folder / "rows.jsonl");
  CsvFile csv(folder / "rows.csv");
  const auto count = [&](const char* name) {
    std::ifstream in(folder / name);
    int n = 0;
    for (std::string line; std::getline(in, line);) ++n;
    return n;
  };
  int written = 0;
  for (const Operation operation : {Operation::all_reduce, Operation::barrier}) {
    for (const Json& row : rows({.operation = operation, .bytes = 1024})) {
      lines.add(row);
      csv.add(row);
      ++written;
      EXPECT_EQ(count("rows.jsonl"), written);
      EXPECT_EQ(count("rows.csv"), written + 1);
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(CollRow, FileThatCannotBeWrittenIsRefused) {
  EXPECT_NE(message_of([] {
              JsonLines lines("/proc/nowhere/rows.jsonl");
            }).find("/proc/nowhere/rows.jsonl"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
