// Every mesh trains as one rank does.
#include <gtest/gtest.h>

#include "parallel/plan/validate.h"
#include "tests/support/training.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using test::train;

ModelConfig model_of(const std::string& name, bool tied, NormPlace norm = NormPlace::pre) {
  ModelConfig model = find_model(name);
  set_field(model, "layers", "4");
  model.tied = tied;
  model.norm = norm;
  model.init_std = 0.2;
  return model;
}

StepOptions options_of(const std::string& schedule, DType dtype, Optimizer optimizer) {
  StepOptions options{.schedule = schedule, .dtype = dtype};
  options.optimizer.kind = optimizer;
  options.optimizer.learning_rate = optimizer == Optimizer::sgd ? 0.1 : 1e-2;
  options.bucket_bytes = 20000;
  return options;
}

void expect_equal(const ModelConfig& model, const std::string& mesh, const StepOptions& options,
                  double tolerance) {
  SCOPED_TRACE(
      cat(model.name, " mesh=", mesh, " schedule=", options.schedule, " tied=", model.tied));
  const test::TrainOptions three{.steps = 3};
  const test::Trained oracle = train(model, Mesh::parse("1"), options, three);
  const test::Trained trained = train(model, Mesh::parse(mesh), options, three);
  EXPECT_LT(largest_error(trained.gradients, oracle.gradients).relative, tolerance);
  EXPECT_LT(largest_error(trained.parameters, oracle.parameters).relative, tolerance);
  for (std::size_t i = 0; i < oracle.steps.size(); ++i) {
    EXPECT_NEAR(trained.steps[i].loss, oracle.steps[i].loss, tolerance * oracle.steps[i].loss);
    EXPECT_NEAR(trained.steps[i].gradient_norm, oracle.steps[i].gradient_norm,
                tolerance * oracle.steps[i].gradient_norm);
    EXPECT_EQ(trained.steps[i].valid_tokens, oracle.steps[i].valid_tokens);
  }
}

class MeshOracle : public testing::TestWithParam<std::string> {};

TEST_P(MeshOracle, TrainsGptAsOneRankInFp64) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    expect_equal(model_of("gpt-tiny", true), GetParam(),
                 options_of(schedule, DType::fp64, Optimizer::sgd), 1e-12);
    expect_equal(model_of("gpt-tiny", false), GetParam(),
                 options_of(schedule, DType::fp64, Optimizer::sgd), 1e-12);
  }
}

TEST_P(MeshOracle, TrainsPostNormGptAsOneRankInFp64) {
  expect_equal(model_of("gpt-tiny", true, NormPlace::post), GetParam(),
               options_of("1f1b", DType::fp64, Optimizer::adamw), 1e-11);
}

TEST_P(MeshOracle, TrainsLlamaAsOneRankInFp64) {
  expect_equal(model_of("llama-tiny", false), GetParam(),
               options_of("1f1b", DType::fp64, Optimizer::sgd), 1e-12);
}

TEST_P(MeshOracle, TrainsGptAsOneRankInFp32) {
  expect_equal(model_of("gpt-tiny", true), GetParam(),
               options_of("1f1b", DType::fp32, Optimizer::sgd), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(UpToEightRanks, MeshOracle,
                         testing::Values("dp2", "dp4", "dp8", "tp2", "pp2", "pp4", "dp2.tp2",
                                         "dp4.tp2", "dp2.pp2", "dp4.pp2", "dp2.pp4", "pp2.tp2",
                                         "pp4.tp2", "dp2.pp2.tp2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace mb
