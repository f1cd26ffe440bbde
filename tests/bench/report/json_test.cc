#include "bench/report/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/support/error.h"

namespace mb {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const char* name) {
  const fs::path folder = fs::path(testing::TempDir()) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(Json, NumbersThatAreNotFiniteBecomeNullAndAreNamed) {
  Json json = {{"a", 1.5}, {"b", {{"c", std::nan("")}, {"d", {1.0, INFINITY}}}}};
  EXPECT_EQ(null_non_finite(json), (std::vector<std::string>{"/b/c", "/b/d/1"}));
  EXPECT_TRUE(json["b"]["c"].is_null());
  EXPECT_EQ(json["a"], 1.5);
}

TEST(Json, WritingWhatIsNotFiniteIsRefused) {
  EXPECT_EQ(message_of([] {
              to_line(Json{{"x", std::nan("")}});
            }),
            "a number at /x is not finite; JSON cannot hold it");
}

TEST(Json, FileHoldsWhatWasWrittenAndNothingElseIsLeft) {
  const fs::path folder = scratch("json_write");
  write_json(folder / "row.json", Json{{"z", 1}, {"a", 2}});
  std::ifstream in(folder / "row.json");
  EXPECT_EQ(Json::parse(in).dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST(Json, OldFileSurvivesAFailedWrite) {
  const fs::path folder = scratch("json_keep");
  write_json(folder / "row.json", Json{{"a", 1}});
  EXPECT_ANY_THROW(write_json(folder / "row.json", Json{{"a", std::nan("")}}));
  std::ifstream in(folder / "row.json");
  EXPECT_EQ(Json::parse(in)["a"], 1);
}

TEST(Json, FolderThatIsNotThereIsNamed) {
  const std::string message =
      message_of([] { write_json("/nonexistent-folder/row.json", Json{}); });
  EXPECT_NE(message.find("/nonexistent-folder/row.json"), std::string::npos) << message;
}

}  // namespace
}  // namespace mb
