#include "bench/choose/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/bench/choose/random_space.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// So many of them by default; MB_CHOOSE_SPACES=1000 takes some minutes.
int spaces() {
  const char* text = std::getenv("MB_CHOOSE_SPACES");
  return text ? std::atoi(text) : 12;
}

// Steps of all cases that fit, fastest first.
std::vector<double> exhausted(const Space& space) {
  std::vector<double> steps;
  for (const Candidate& c : test::all_of(space)) {
    const Simulated s = simulate_candidate(space, c);
    if (s.fits) steps.push_back(s.prediction.step_s);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST(Search, HasTheTenBestOfAnExhaustiveSearch) {
  test::Draw draw(11);
  int nothing = 0, places = 0, lost = 0;
  std::int64_t cases = 0, simulated = 0;
  for (int i = 0; i < spaces(); ++i) {
    Question question = test::random_question(draw);
    test::narrow(question, draw);
    const Space space(question);
    const SearchResult result = search(space, {.front = 0, .threads = 1});
    const std::vector<double> steps = exhausted(space);
    cases += result.cases;
    simulated += result.simulated;
    nothing += steps.empty();
    ASSERT_EQ(result.fastest.size(), std::min<std::size_t>(10, steps.size())) << i;
    // Equal steps are equally good.
    for (std::size_t place = 0; place < result.fastest.size(); ++place) {
      const Simulated& found = result.fastest[place];
      ++places;
      lost += found.prediction.step_s > steps[place];
      EXPECT_EQ(found.prediction.step_s, steps[place])
          << "space " << i << ", place " << place + 1 << ", where the search has "
          << space.meshes()[found.candidate.mesh].to_text() << ' '
          << space.options_of(found.candidate).schedule;
    }
  }
  RecordProperty("cases", std::to_string(cases));
  RecordProperty("simulated", std::to_string(simulated));
  std::printf(
      "%lld cases, %lld of them simulated by the search, %d spaces without one that fits, "
      "%d of %d places lost\n",
      static_cast<long long>(cases), static_cast<long long>(simulated), nothing, lost, places);
}

// Threads share the work in any way; what comes out does not tell.
TEST(Search, FindsTheSameOnAnyNumberOfThreads) {
  test::Draw draw(3);
  Question question = test::random_question(draw);
  test::narrow(question, draw);
  question.gpus = 8;
  question.global_batch = 32;
  const Space space(question);
  const SearchResult one = search(space, {.threads = 1}), three = search(space, {.threads = 3});
  EXPECT_EQ(one.cases, three.cases);
  EXPECT_EQ(one.walked, three.walked);
  EXPECT_EQ(one.simulated, three.simulated);
  ASSERT_EQ(one.fastest.size(), three.fastest.size());
  for (std::size_t i = 0; i < one.fastest.size(); ++i) {
    EXPECT_EQ(one.fastest[i].candidate, three.fastest[i].candidate);
    EXPECT_EQ(one.fastest[i].prediction.step_s, three.fastest[i].prediction.step_s);
  }
}

// The front goes from the fastest down to less memory, and no case on it is beaten in both.
TEST(Search, FrontTradesTimeForMemory) {
  test::Draw draw(5);
  Question question = test::random_question(draw);
  question.gpus = 8;
  const SearchResult result = search(Space(question), {.threads = 1});
  ASSERT_FALSE(result.front.empty());
  EXPECT_EQ(result.front.front().candidate, result.fastest.front().candidate);
  for (std::size_t i = 1; i < result.front.size(); ++i) {
    EXPECT_GE(result.front[i].prediction.step_s, result.front[i - 1].prediction.step_s);
    EXPECT_LT(needed_bytes(result.front[i].prediction),
              needed_bytes(result.front[i - 1].prediction));
  }
}

TEST(Search, TellsTheSmallestWhereNothingFits) {
  test::Draw draw(5);
  Question question = test::random_question(draw);
  question.memory_bytes = 1e6;
  const SearchResult result = search(Space(question), {.threads = 1});
  EXPECT_TRUE(result.fastest.empty());
  ASSERT_TRUE(result.smallest);
  EXPECT_GT(needed_bytes(result.smallest->prediction), 1e6);
}

TEST(InParallel, ThrowsWhatAnyThreadThrows) {
  EXPECT_THROW(in_parallel(3, 100, [](std::int64_t i) { require(i != 57, "57"); }), Error);
}

}  // namespace
}  // namespace mb
