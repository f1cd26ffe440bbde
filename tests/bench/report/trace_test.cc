#include "bench/report/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "bench/analysis/step_times.h"
#include "tests/bench/synthetic.h"

namespace mb {
namespace {

using Json = nlohmann::json;

std::int64_t ns(const Json& event, const char* key) {
  return std::llround(event[key].get<double>() * 1000);
}

struct Reloaded {
  StepShape shape = small_shape("dp2.pp2.tp2", "1f1b", 3);
  Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  Timeline timeline;
  Json trace;

  explicit Reloaded(bool jitter = false) {
    std::mt19937 random(3);
    std::uniform_int_distribution<int> cost(0, 900);
    timeline =
        one_lane_a_rank(virtual_timeline(plan, [&](int, InstructionId) { return cost(random); }));
    for (auto& lane : timeline.lanes)
      for (Span& span : lane)
        span.start_ns += 5'000'000'123, span.end_ns += 5'000'000'123 + (jitter ? cost(random) : 0);
    std::ostringstream out;
    write_trace(out, plan, timeline);
    trace = Json::parse(out.str());
  }
  std::vector<Json> events(const char* phase) const {
    std::vector<Json> found;
    for (const Json& event : trace["traceEvents"])
      if (event["ph"] == phase) found.push_back(event);
    return found;
  }
};

void expect_no_overlap(const Reloaded& r) {
  std::map<std::pair<int, int>, std::vector<Span>> threads;
  for (const Json& e : r.events("X"))
    threads[{e["pid"], e["tid"]}].push_back({ns(e, "ts"), ns(e, "ts") + ns(e, "dur")});
  for (auto& [thread, spans] : threads) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return std::pair(a.start_ns, a.end_ns) < std::pair(b.start_ns, b.end_ns);
    });
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_GE(spans[i].start_ns, spans[i - 1].end_ns) << thread.first << " " << thread.second;
  }
}

TEST(Trace, SlicesOfOneThreadNeverOverlap) { expect_no_overlap(Reloaded()); }

TEST(Trace, OverlappingSlicesMoveToAnotherThread) {
  const Reloaded r(/*jitter=*/true);
  expect_no_overlap(r);
  std::set<std::string> names;
  for (const Json& e : r.events("M"))
    if (e["name"] == "thread_name") names.insert(e["args"]["name"].get<std::string>());
  EXPECT_TRUE(names.contains("compute"));
  EXPECT_TRUE(names.contains("compute (2)"));
}

TEST(Trace, EveryInstructionIsThereOnceWithItsTimes) {
  const Reloaded r;
  EXPECT_EQ(r.trace["baseTimeNanoseconds"], r.timeline.window().start_ns);
  std::set<std::pair<int, int>> seen;
  for (const Json& e : r.events("X")) {
    if (e["cat"] == "bubble") continue;
    const int rank = e["pid"], id = e["args"]["instruction"];
    EXPECT_TRUE(seen.insert({rank, id}).second);
    const Span& span = r.timeline.of(rank)[id];
    EXPECT_EQ(ns(e, "ts"), span.start_ns - r.timeline.window().start_ns);
    EXPECT_EQ(ns(e, "dur"), span.end_ns - span.start_ns);
    const Program& program = r.plan.program_of(rank);
    const auto after = program.after(program.instructions[id]);
    EXPECT_EQ(e["args"].value("after", std::vector<InstructionId>()),
              std::vector<InstructionId>(after.begin(), after.end()));
  }
  std::size_t instructions = 0;
  for (int rank = 0; rank < 8; ++rank) instructions += r.plan.program_of(rank).instructions.size();
  EXPECT_EQ(seen.size(), instructions);
}

TEST(Trace, PassesAndChunksAreToldApartByNameAndColour) {
  StepShape shape = small_shape("pp2", "zb-v", 4, 2);
  shape.options.recompute = Recompute::full;
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  std::ostringstream out;
  write_trace(out, plan, virtual_timeline(plan, [](int, InstructionId) { return 10; }));
  std::map<std::string, std::set<std::string>> colours;
  std::set<std::string> names;
  const Json trace = Json::parse(out.str());
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "compute") continue;
    colours[e["cname"]].insert(e["args"]["pass"]);
    names.insert(e["name"]);
    EXPECT_EQ(e["name"].get<std::string>().find(".1 ") != std::string::npos,
              e["args"]["chunk"] == 1);
  }
  for (const char* pass : {"forward", "input_grad", "weight_grad", "recompute", "optimizer"}) {
    const auto has = [&](const auto& entry) { return entry.second.contains(pass); };
    const auto colour = std::find_if(colours.begin(), colours.end(), has);
    ASSERT_NE(colour, colours.end()) << pass;
    EXPECT_EQ(colour->second.size(), 1u) << pass;
  }
  for (const char* name : {"F0 l0 mlp.up", "F3.1 l3 mlp.up", "R3.1 l3 mlp.up", "W3.1 l3 mlp.up"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Trace, EverySendLeadsToOneReceiveOfTheNextOrLastStage) {
  const Reloaded r;
  std::map<std::int64_t, Json> starts;
  for (const Json& e : r.events("s")) EXPECT_TRUE(starts.emplace(e["id"], e).second);
  EXPECT_EQ(starts.size(), 4u * 2 * 3);  // pipelines, directions, micro-batches
  std::set<std::int64_t> ended;
  for (const Json& e : r.events("f")) {
    EXPECT_EQ(e["bp"], "e");
    EXPECT_TRUE(ended.insert(e["id"].get<std::int64_t>()).second);
    const Json& start = starts.at(e["id"]);
    EXPECT_LE(ns(start, "ts"), ns(e, "ts"));
    EXPECT_EQ(std::abs(start["pid"].get<int>() - e["pid"].get<int>()), 4);
    EXPECT_LT(e["id"].get<double>(), std::pow(2.0, 53));
  }
  EXPECT_EQ(ended.size(), starts.size());
}

TEST(Trace, BubbleSlicesAddUpToTheBubble) {
  const Reloaded r;
  std::map<int, std::int64_t> total;
  for (const Json& e : r.events("X"))
    if (e["cat"] == "bubble") total[e["pid"].get<int>()] += ns(e, "dur");
  for (const RankTimes& rank : step_times(r.plan, r.timeline).ranks)
    EXPECT_EQ(total[rank.rank], rank.bubble->bubble_ns());
}

TEST(Trace, RanksOnOneLaneAreShownOnce) {
  const StepShape shape = small_shape("dp4.pp2", "gpipe", 2);
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  std::ostringstream out;
  write_trace(out, plan, balanced_timeline(plan, 30, 50));
  std::set<std::string> names;
  const Json trace = Json::parse(out.str());
  for (const Json& e : trace["traceEvents"])
    if (e["name"] == "process_name") names.insert(e["args"]["name"].get<std::string>());
  EXPECT_EQ(names,
            (std::set<std::string>{"rank 0 and 3 alike, stage 0", "rank 4 and 3 alike, stage 1"}));
}

TEST(Trace, NamesAreEscaped) {
  HandPlan hand("1");
  hand.plan.names[0] = "a \"b\"\\\n";
  hand.compute(0);
  std::ostringstream out;
  write_trace(out, hand.plan, empty_timeline(hand.plan));
  const Json trace = Json::parse(out.str());
  bool found = false;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X") found = e["args"]["site"] == "a \"b\"\\\n";
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace mb
