// Whole models against PyTorch in fp64, on one rank and on meshes; and against themselves where
// ranks and micro-batches have unequal numbers of valid tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tests/support/fixture.h"
#include "tests/support/training.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Serves the fixture's one batch at every step: a row a sequence, in the order of data ranks and
// micro-batches.
class FixtureBatches final : public BatchSource {
 public:
  FixtureBatches(std::vector<double> tokens, std::vector<double> labels, int micro_batches)
      : tokens_(std::move(tokens)), labels_(std::move(labels)), micro_batches_(micro_batches) {}

  void load(std::int64_t, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    const std::int64_t count = batch * sequence;
    const std::int64_t begin = (data_index * micro_batches_ + micro_batch) * count;
    ASSERT_LE(begin + count, static_cast<std::int64_t>(tokens_.size()));
    if (tokens) std::copy_n(tokens_.begin() + begin, count, tokens);
    if (labels) std::copy_n(labels_.begin() + begin, count, labels);
  }

 private:
  std::vector<double> tokens_, labels_;
  int micro_batches_;
};

struct FixtureRun {
  std::string model, mesh, schedule = "1f1b";
  std::int64_t micro_batch = 1;
};
std::ostream& operator<<(std::ostream& out, const FixtureRun& run) {
  return out << run.model << " mesh=" << run.mesh << " schedule=" << run.schedule
             << " micro_batch=" << run.micro_batch;
}

class AgainstPyTorch : public testing::TestWithParam<FixtureRun> {
 protected:
  test::Trained train(Optimizer optimizer, int steps) const {
    return train(GetParam(), fixture_.array("labels"), optimizer, steps);
  }
  test::Trained train(const FixtureRun& run, const std::vector<double>& labels, Optimizer optimizer,
                      int steps) const {
    const auto batch = static_cast<std::int64_t>(fixture_.number("batch"));
    const Mesh mesh = Mesh::parse(run.mesh);
    const FixtureBatches batches(fixture_.array("tokens"), labels,
                                 static_cast<int>(batch / mesh.data_size() / run.micro_batch));
    StepOptions options{
        .schedule = run.schedule, .micro_batch = run.micro_batch, .dtype = DType::fp64};
    const bool adamw = optimizer == Optimizer::adamw;
    options.optimizer = {
        .kind = optimizer,
        .learning_rate = fixture_.number(adamw ? "learning_rate" : "sgd_learning_rate"),
        .beta1 = fixture_.number("beta1"),
        .beta2 = fixture_.number("beta2"),
        .epsilon = fixture_.number("epsilon"),
        .weight_decay = fixture_.number("weight_decay"),
        .clip = adamw ? fixture_.number("clip") : 0};
    options.bucket_bytes = 4096;
    return test::train(
        fixture_.model(), mesh, options,
        {.steps = steps,
         .global_batch = batch,
         .batches = &batches,
         .init = {.seed = static_cast<std::uint64_t>(fixture_.number("seed")), .perturbed = true}});
  }

  // Sum and dot product are held to `tolerance` of what they would be without cancellation.
  void expect_sums(const std::string& kind, const std::string& name,
                   const std::vector<double>& values, double tolerance) const {
    const auto seed = static_cast<std::uint64_t>(fixture_.number("seed"));
    const auto sums = checksums(name, seed, values);
    const std::vector<double>& expected = fixture_.array(kind + name);
    const double size = std::sqrt(expected[1] * static_cast<double>(values.size())) + 1e-3;
    EXPECT_NEAR(sums[0], expected[0], tolerance * size) << kind << name;
    EXPECT_NEAR(sums[1], expected[1], tolerance * (expected[1] + 1e-6)) << kind << name;
    EXPECT_NEAR(sums[2], expected[2], tolerance * size) << kind << name;
  }

  Fixture fixture_ = read_fixture(GetParam().model);
};

TEST_P(AgainstPyTorch, LossNormAndEveryGradientAgree) {
  const test::Trained trained = train(Optimizer::sgd, 1);
  EXPECT_NEAR(trained.steps[0].loss, fixture_.array("loss")[0], 1e-13);
  EXPECT_NEAR(trained.steps[0].balance_loss, fixture_.array("balance_loss")[0], 1e-13);
  EXPECT_NEAR(trained.steps[0].gradient_norm, fixture_.array("gradient_norm")[0], 1e-12);
  const std::vector<double>& labels = fixture_.array("labels");
  EXPECT_EQ(trained.steps[0].valid_tokens,
            std::count_if(labels.begin(), labels.end(), [](double label) { return label >= 0; }));

  ASSERT_EQ(trained.gradients.size(), fixture_.parameters().size());
  for (const std::string& name : fixture_.parameters()) {
    const std::vector<double>&expected = fixture_.array("gradient/" + name),
          &values = trained.gradients.at(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(values[i] - expected[i]));
    }
    EXPECT_LT(error, 1e-6 * largest) << name;
    expect_sums("gradient_sums/", name, values, 1e-12);
  }
}

TEST_P(AgainstPyTorch, ParametersAgreeAfterAStepOfSgd) {
  const test::Trained trained = train(Optimizer::sgd, 1);
  for (const std::string& name : fixture_.parameters())
    expect_sums("sgd/", name, trained.parameters.at(name), 1e-13);
}

TEST_P(AgainstPyTorch, ParametersAgreeAfterThreeClippedStepsOfAdamW) {
  const test::Trained trained = train(Optimizer::adamw, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(trained.steps[i].loss, fixture_.array("adamw_losses")[i], 1e-12) << i;
    EXPECT_NEAR(trained.steps[i].gradient_norm, fixture_.array("adamw_norms")[i], 1e-11) << i;
  }
  for (const std::string& name : fixture_.parameters())
    expect_sums("adamw/", name, trained.parameters.at(name), 1e-11);
}

// Summed over the valid labels and divided by their number, from PyTorch's logits.
double loss_of(const Fixture& fixture, const std::vector<double>& labels) {
  const std::vector<double>& logits = fixture.array("logits");
  const std::size_t vocabulary = logits.size() / labels.size();
  double sum = 0, valid = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0) continue;
    const double* x = &logits[row * vocabulary];
    double exponentials = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) exponentials += std::exp(x[i]);
    sum += std::log(exponentials) - x[static_cast<int>(labels[row])];
    ++valid;
  }
  return sum / valid;
}

// A mean over ranks or micro-batches of their own means would differ here.
TEST_P(AgainstPyTorch, EveryValidTokenWeighsTheSame) {
  const auto batch = static_cast<std::size_t>(fixture_.number("batch"));
  const std::size_t sequence = fixture_.array("labels").size() / batch;
  for (std::vector<std::size_t> valid :
       {std::vector<std::size_t>{1, sequence, 3, 2}, {0, sequence, 5, 1}}) {
    valid.resize(batch);
    std::vector<double> labels = fixture_.array("labels");
    for (std::size_t row = 0; row < batch; ++row) {
      for (std::size_t i = 0; i < sequence; ++i) {
        double& label = labels[row * sequence + i];
        label = i < valid[row] ? std::max(label, 0.0) : -1;
      }
    }
    const FixtureRun whole{GetParam().model, "1", "gpipe",
                           static_cast<std::int64_t>(batch)};  // one micro-batch: one mean
    const test::Trained expected = train(whole, labels, Optimizer::sgd, 1);
    const test::Trained trained = train(GetParam(), labels, Optimizer::sgd, 1);
    EXPECT_EQ(trained.steps[0].valid_tokens,
              std::accumulate(valid.begin(), valid.end(), std::int64_t{0}));
    EXPECT_NEAR(trained.steps[0].loss, loss_of(fixture_, labels), 1e-6);
    EXPECT_NEAR(trained.steps[0].gradient_norm, expected.steps[0].gradient_norm, 1e-12);
    EXPECT_LT(largest_error(trained.gradients, expected.gradients).relative, 1e-12);
    EXPECT_LT(largest_error(trained.parameters, expected.parameters).relative, 1e-12);
  }
}

std::vector<FixtureRun> runs() {
  std::vector<FixtureRun> all;
  for (const char* model : {"model_gpt_pre_tied", "model_gpt_post_untied", "model_llama_untied"}) {
    all.push_back({model, "1", "1f1b", 3});
    all.push_back({model, "1", "gpipe", 1});
    for (const char* mesh : {"dp3", "pp2", "tp2", "dp3.pp2", "dp3.tp2", "pp2.tp2"})
      all.push_back({model, mesh});
    all.push_back({model, "pp2", "gpipe"});
  }
  for (const char* model : {"model_moe", "model_moe_capacity"}) {
    all.push_back({model, "1", "1f1b", 4});
    for (const char* mesh : {"1", "ep2", "ep4", "ep2.tp2", "dp2.pp2"}) all.push_back({model, mesh});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Meshes, AgainstPyTorch, testing::ValuesIn(runs()), [](const auto& info) {
  std::string name = cat(info.param.model, '_', info.param.mesh, '_', info.param.schedule, '_',
                         info.param.micro_batch);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace mb
