#include "bench/report/row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/bench/synthetic.h"

namespace mb {
namespace {

Json schema() {
  std::ifstream in(MB_ROW_SCHEMA);
  return Json::parse(in);
}

Json sample_row() {
  const StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  RunResults results;
  for (int step = 0; step < 3; ++step)
    results.timelines.push_back(
        virtual_timeline(plan, [&](int, InstructionId id) { return 100 + 10 * step + id % 7; }));
  const StepWork work{.tokens = 48, .model_flops = 1e3, .devices = 8, .peak_flops_per_s = 1e12};
  Json row = row_head({.case_line = "model=small mesh=dp2.pp2.tp2",
                       .params = {{"model", std::string("small")}, {"seed", std::int64_t{1}}},
                       .seed = 1});
  add_step(row, shape, report_run(plan, shape, results, work),
           {.mode = "sim",
            .virtual_time = true,
            .peak_flops_per_s = 1e12,
            .peak_source = "test",
            .verified_by = "virtual time moves no data"});
  return row;
}

void expect_keys(const Json& object, const Json& required, const std::string& where) {
  for (const Json& key : required)
    EXPECT_TRUE(object.contains(key.get<std::string>())) << where << " lacks " << key;
}

// Follows properties, items and references to the required keys of every object that the row has.
void expect_required(const Json& value, const Json& rule, const Json& root,
                     const std::string& where) {
  if (rule.contains("$ref")) {
    const std::string pointer = rule["$ref"].get<std::string>().substr(1);
    expect_required(value, root[Json::json_pointer(pointer)], root, where);
  }
  if (value.is_object() && rule.contains("required")) expect_keys(value, rule["required"], where);
  if (value.is_object() && rule.contains("properties"))
    for (const auto& [key, part] : rule["properties"].items())
      if (value.contains(key)) expect_required(value[key], part, root, where + "/" + key);
  if (value.is_array() && rule.contains("items"))
    for (const Json& item : value) expect_required(item, rule["items"], root, where + "[]");
}

TEST(Row, HasEveryFieldThatTheSchemaRequires) {
  const Json rules = schema(), row = sample_row();
  expect_required(row, rules, rules, "row");
  const Json& step = rules["allOf"][0]["then"];
  expect_keys(row, step["required"], "row");
  expect_keys(row["metrics"], step["properties"]["metrics"]["required"], "metrics");
}

TEST(Row, MetricsHaveAValueOrAReason) {
  const Json metrics = sample_row()["metrics"];
  for (const auto& [name, metric] : metrics.items()) {
    EXPECT_EQ(metric["value"].is_null(), metric.contains("reason")) << name;
    EXPECT_EQ(metric["value"].is_null(), metric["n"] == 0) << name;
  }
  EXPECT_EQ(metrics["step_s"]["n"], 3);
  EXPECT_EQ(metrics["loss"]["reason"], "virtual time moves no data");
}

TEST(Row, BreakdownAddsUpInTheJsonToo) {
  const Json breakdown = sample_row()["breakdown"];
  std::int64_t sum = 0;
  for (const Json& part : breakdown["parts"]) sum += part["total_ns"].get<std::int64_t>();
  EXPECT_EQ(sum, breakdown["window_ns"].get<std::int64_t>() * breakdown["ranks"].get<int>());
}

TEST(Row, IsOneLineOfStrictJson) {
  const std::string line = to_line(sample_row());
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(Json::parse(line)["schema"], "meshbench-row/1");
}

TEST(Row, KeyFollowsFromTheCaseAndRunIdDoesNot) {
  const Json a = sample_row(), b = sample_row();
  EXPECT_EQ(a["key"], b["key"]);
  EXPECT_NE(a["run_id"], b["run_id"]);
}

TEST(Row, SampleThatIsNotFiniteMakesTheMetricAbsent) {
  const Json metric = to_json(value("x", "s", std::nan("")));
  EXPECT_TRUE(metric["value"].is_null());
  EXPECT_EQ(metric["reason"], "not finite");
}

TEST(Row, ArtifactsAreRelative) {
  const auto here = std::filesystem::current_path();
  const Json row =
      row_head({.case_line = "x", .artifacts = {{"trace", here / "a/t.json"}, {"plan", "./p"}}});
  EXPECT_EQ(row["artifacts"]["trace"], "a/t.json");
  EXPECT_EQ(row["artifacts"]["plan"], "p");
}

TEST(Row, BytesAreIntegers) {
  EXPECT_EQ(to_json(value("x", "B", 1e15))["value"].dump(), "1000000000000000");
}

}  // namespace
}  // namespace mb
