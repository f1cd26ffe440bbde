// A long run ends where information theory says it must.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/training.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

TEST(LongRun, ComesDownToTheEntropyOfTheMarkovSourceAndNotBelow) {
  ModelConfig model = find_model("gpt-tiny");
  set_field(model, "vocabulary", "8");
  StepOptions options{.micro_batch = 8};
  options.optimizer.learning_rate = 0.01;
  const auto source = make_markov_source(model.vocabulary, 1);
  const auto batches = make_batches(*source, 32, 2);
  const test::Trained trained = test::train(
      model, Mesh::parse("dp2"), options,
      {.steps = 300, .global_batch = 32, .batches = batches.get(), .init = {.seed = 1}});

  const auto loss = [](double sum, const Training& step) { return sum + step.loss; };
  const double mean =
      std::accumulate(trained.steps.end() - 50, trained.steps.end(), 0.0, loss) / 50;
  EXPECT_GT(trained.steps.front().loss, source->entropy_nats() + 0.7);
  EXPECT_LT(mean, source->entropy_nats() + 0.05);
  EXPECT_GT(mean, source->entropy_nats() - 0.02);  // the noise of 25,600 tokens
}

}  // namespace
}  // namespace mb
