#include "tests/support/training.h"

#include <gtest/gtest.h>

#include <map>

#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "tests/support/devices.h"
#include "tests/support/launched.h"

namespace mb::test {

Trainer::Trainer(const ModelConfig& model, const Mesh& mesh, StepOptions options,
                 const TrainOptions& train)
    : source_(make_markov_source(model.vocabulary, 7)),
      markov_(make_batches(*source_, train.global_batch, mesh.data_size())) {
  options.micro_batches =
      static_cast<int>(train.global_batch / mesh.data_size() / options.micro_batch);
  plan_ = plan_step(model, mesh, options);
  validate(plan_);
  const LiveSettings settings{.make_device = train.on_cpu ? DeviceMaker() : devices(train.graph),
                              .init = train.init,
                              .batches = train.batches ? train.batches : markov_.get(),
                              .timeout_s = 30,
                              .delays = train.delays,
                              .poison = train.poison};
  MpiWorld* const ranks = train.on_threads ? nullptr : launched();
  if (!train.on_cpu) {
    hosts_ = std::make_unique<ThreadWorld>(mesh.world(), train.delays);
    world_ = world_over(*hosts_);
  }
  executor_ = world_ ? make_live_executor(plan_, settings, *world_)
              : ranks && ranks->size() == mesh.world() ? make_live_executor(plan_, settings, *ranks)
                                                       : make_thread_executor(plan_, settings);
}

Trained train(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
              const TrainOptions& train) {
  Trainer trainer(model, mesh, options, train);
  Trained trained;
  for (int i = 0; i < train.steps; ++i) {
    trained.steps.push_back(trainer.step());
    if (launched() && !train.on_threads && i + 1 < train.steps) continue;  // gathering takes long
    trained.gradients = trainer.gradients(trained.steps.back());
    trained.parameters = trainer.parameters();
  }
  for (const std::string& fault : device_faults()) ADD_FAILURE() << fault;
  return trained;
}

bool runs_here(const Case& c) { return !launched() || launched()->size() == c.mesh.world(); }
bool judges() { return !launched() || launched()->rank() == 0; }

Case case_of(const std::string& words) { return parse_case(split_words(words)); }

Trained train(const Case& c, TrainOptions options) {
  options.global_batch = c.global_batch;
  options.graph = c.graph;
  return train(c.model, c.mesh, c.options, options);
}

const Trained& oracle_of(const Case& c, TrainOptions options) {
  options.on_cpu = true;
  static std::map<std::string, Trained> known;
  Case alone = c;
  alone.mesh = Mesh();
  alone.options = on_one_rank(c.options, c.global_batch);
  const std::string key = cat(to_text(alone), " steps=", options.steps);
  const auto found = known.find(key);
  return found != known.end() ? found->second
                              : known.emplace(key, train(alone, options)).first->second;
}

void expect_equal(const Trained& trained, const Trained& oracle, double tolerance) {
  const LargestError gradient = largest_error(trained.gradients, oracle.gradients);
  EXPECT_LT(gradient.relative, tolerance) << "gradient of " << gradient.tensor;
  const LargestError parameter = largest_error(trained.parameters, oracle.parameters);
  EXPECT_LT(parameter.relative, tolerance) << "parameter " << parameter.tensor;
  ASSERT_EQ(trained.steps.size(), oracle.steps.size());
  for (std::size_t i = 0; i < oracle.steps.size(); ++i) {
    EXPECT_NEAR(trained.steps[i].loss, oracle.steps[i].loss, tolerance * oracle.steps[i].loss);
    EXPECT_NEAR(trained.steps[i].balance_loss, oracle.steps[i].balance_loss,
                tolerance * oracle.steps[i].balance_loss);
    EXPECT_NEAR(trained.steps[i].gradient_norm, oracle.steps[i].gradient_norm,
                tolerance * oracle.steps[i].gradient_norm);
    EXPECT_EQ(trained.steps[i].valid_tokens, oracle.steps[i].valid_tokens);
  }
}

}  // namespace mb::test
