#include "bench/cli/nearby_cases.h"

#include <gtest/gtest.h>

#include "bench/cli/key.h"
#include "parallel/exec/predict.h"

namespace mb {
namespace {

Case sim(const std::string& words) { return parse_case(split_words("mode=sim " + words)); }

TEST(NearbyCases, NamesInputsThatChangeNothing) {
  const std::string model = "model=gpt-1m global_batch=16 dtype=bf16 machine=h100x8 ";
  using Found = std::vector<std::string>;
  EXPECT_EQ(inputs_without_effect(sim(model + "mesh=dp4")), Found{});
  EXPECT_EQ(inputs_without_effect(sim(model + "mesh=dp4 machine.nic_gb_per_s=5")),
            Found{"machine.nic_gb_per_s=5.0"})
      << "one node";
  EXPECT_EQ(inputs_without_effect(sim(model + "mesh=dp16 machine.nic_gb_per_s=5")), Found{});
  EXPECT_EQ(inputs_without_effect(sim(model + "mesh=dp16 machine.oversubscription=4")),
            Found{"machine.oversubscription=4.0"})
      << "no leaves to leave";
  EXPECT_EQ(inputs_without_effect(sim(model + "mesh=dp4 stack.scatter_sends=true")),
            Found{"stack.scatter_sends=true"})
      << "no stages";
}

TEST(NearbyCases, FindsWhatFitsAndProposesNothingThatDoesNot) {
  const std::string words =
      "model=gpt3-6.7b mesh=dp8 machine=a100x8 dtype=bf16 micro_batch=2 global_batch=64 ";
  const std::string nearest = nearest_that_fits(sim(words));
  ASSERT_NE(nearest, "");
  std::vector<std::string> kept = split_words(nearest);
  for (const std::string& word : split_words("mode=sim " + words)) {
    const std::string key = word.substr(0, word.find('=') + 1);
    if (nearest.find(key) == std::string::npos) kept.push_back(word);
  }
  const Case c = parse_case(kept);
  const StepMemory memory = memory_of_step(c.model, c.mesh, c.options, c.machine, c.stack);
  EXPECT_LE(static_cast<double>(memory.total()), 1e9 * c.machine.memory_gb) << nearest;
  EXPECT_EQ(nearest_that_fits(sim("model=gpt3-175b mesh=1 machine=a100x8 dtype=bf16")), "");
}

}  // namespace
}  // namespace mb
