#include "parallel/exec/marker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/exec/executor.h"
#include "parallel/plan/text.h"
#include "parallel/strategy/step.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

constexpr int threads = 3, rounds = 50;

// Runs in a process of its own, where NVTX finds the tool of tests/support.
TEST(MarkersUnderATool, DISABLED_MarkFromThreads) {
  ASSERT_TRUE(markers_active());
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([t] {
      for (int m = 0; m < rounds; ++m) {
        marker_push({"F m" + std::to_string(m) + " l" + std::to_string(t), "forward", m, t});
        marker_push({"all_reduce", "optimizer", -1, -1, std::int64_t{1} << 40});
        marker_pop();
        marker_pop();
      }
    });
  }
  for (auto& worker : workers) worker.join();
}

// One step of two pipeline stages, two tensor ranks each.
Plan small_plan() {
  return plan_step(find_model("gpt-tiny"), Mesh::parse("pp2.tp2"), {.micro_batches = 2});
}

TEST(MarkersUnderATool, DISABLED_TrainOneStep) {
  const Plan plan = small_plan();
  const auto source = make_markov_source(find_model("gpt-tiny").vocabulary, 1);
  const auto batches = make_batches(*source, 2, 1);
  make_thread_executor(plan, {.batches = batches.get()})->step();
}

// What the tool printed while `test` ran, without the leading "nvtx".
std::vector<std::string> lines_of_tool(const std::string& test = "MarkFromThreads",
                                       const std::string& environment = "") {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return {};
  const std::string command = environment + " NVTX_INJECTION64_PATH='" + MB_NVTX_INJECTION + "' '" +
                              self.data() +
                              "' --gtest_also_run_disabled_tests"
                              " --gtest_filter=MarkersUnderATool.DISABLED_" +
                              test;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  std::vector<std::string> lines;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), pipe)) {
    std::string text = line.data();
    text.pop_back();
    if (text.rfind("nvtx ", 0) == 0) lines.push_back(text.substr(5));
  }
  EXPECT_EQ(pclose(pipe), 0);
  return lines;
}

// The rest of each line whose word after the thread's number is `verb`, by thread.
std::map<int, std::vector<std::string>> told(const std::vector<std::string>& lines,
                                             const std::string& verb) {
  std::map<int, std::vector<std::string>> result;
  for (const std::string& line : lines) {
    std::istringstream in(line);
    int thread = 0;
    std::string word, rest;
    in >> thread >> word >> std::ws;
    std::getline(in, rest);
    if (word == verb) result[thread].push_back(rest);
  }
  return result;
}

TEST(Markers, ReachAToolWithDomainCategoryMessageAndPayload) {
  if (!nvtx_available()) GTEST_SKIP() << "built without NVTX";
  const auto lines = lines_of_tool();

  std::map<std::string, std::string> category;  // number by name
  for (const auto& [thread, texts] : told(lines, "category")) {
    for (const auto& text : texts) category[text.substr(text.find(' ') + 1)] = text.substr(0, 1);
  }
  EXPECT_EQ(category.size(), 2u);
  EXPECT_NE(category["forward"], category["optimizer"]);

  const auto pushes = told(lines, "push"), pops = told(lines, "pop");
  ASSERT_EQ(pushes.size(), static_cast<std::size_t>(threads));
  std::map<std::string, int> times;
  for (const auto& [thread, texts] : pushes) {
    for (const auto& text : texts) ++times[text];
    EXPECT_EQ(pops.at(thread), std::vector<std::string>(texts.size(), "meshbench"));
  }
  EXPECT_EQ(times["meshbench " + category["optimizer"] + " -1,-1,1099511627776 all_reduce"],
            threads * rounds);
  EXPECT_EQ(times["meshbench " + category["forward"] + " 7,2,0 F m7 l2"], 1);
  EXPECT_EQ(times.size(), 1u + threads * rounds);
}

TEST(Markers, MakeOneDomainAndRegisterAMessageOnce) {
  if (!nvtx_available()) GTEST_SKIP() << "built without NVTX";
  const auto lines = lines_of_tool();
  int domains = 0, strings = 0;
  for (const auto& [thread, texts] : told(lines, "domain")) domains += texts.size();
  for (const auto& [thread, texts] : told(lines, "string")) strings += texts.size();
  EXPECT_EQ(domains, 1);
  EXPECT_EQ(strings, 1 + threads * rounds);
}

TEST(Markers, NameTheFieldsOfTheirPayload) {
  if (!nvtx_available()) GTEST_SKIP() << "built without NVTX";
  std::vector<std::string> schemas;
  for (const auto& [thread, texts] : told(lines_of_tool(), "schema"))
    schemas.insert(schemas.end(), texts.begin(), texts.end());
  EXPECT_EQ(schemas, (std::vector<std::string>{"instruction 24: micro-batch@0 layer@8 bytes@16"}));
}

TEST(Markers, GiveOneNumberToAToolThatKnowsNoPayloads) {
  if (!nvtx_available()) GTEST_SKIP() << "built without NVTX";
  std::map<std::string, int> times;
  const auto lines = lines_of_tool("MarkFromThreads", "MB_NVTX_WITHOUT_PAYLOADS=1");
  for (const auto& [thread, texts] : told(lines, "push")) {
    for (const auto& text : texts) ++times[text.substr(text.find(' ', text.find(' ') + 1) + 1)];
  }
  EXPECT_EQ(times["1099511627776 all_reduce"], threads * rounds);
  EXPECT_EQ(times["7 F m7 l2"], 1);
}

TEST(Markers, AreARangeAroundEveryInstructionOfALiveStep) {
  if (!nvtx_available()) GTEST_SKIP() << "built without NVTX";
  const Plan plan = small_plan();
  std::map<std::string, int> expected, seen;  // by fields and message
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const Program& program = plan.program_of(rank);
    for (const Instruction& i : program.instructions) {
      const std::int64_t bytes =
          std::holds_alternative<Compute>(i.action) ? 0 : payload_bytes(program, i);
      ++expected[cat(i.label.micro_batch, ',', i.label.layer, ',', bytes, ' ',
                     label_text(plan, i.label))];
    }
  }
  const auto lines = lines_of_tool("TrainOneStep");
  std::size_t pushes = 0, pops = 0;
  for (const auto& [thread, texts] : told(lines, "push")) {
    for (const std::string& text : texts) {
      std::istringstream in(text);
      std::string domain, category, payload, message;
      in >> domain >> category >> payload >> std::ws;
      std::getline(in, message);
      ++seen[payload + ' ' + message];
      ++pushes;
    }
  }
  for (const auto& [thread, texts] : told(lines, "pop")) pops += texts.size();
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(pushes, pops);
}

TEST(Markers, DoNothingWithoutATool) {
  if (std::getenv("NVTX_INJECTION64_PATH")) GTEST_SKIP() << "a tool is attached";
  EXPECT_FALSE(markers_active());
  marker_push({"F m0", "forward"});
  marker_pop();
  marker_pop();
}

}  // namespace
}  // namespace mb
