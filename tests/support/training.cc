#include "tests/support/training.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mb::test {

std::map<std::string, std::vector<double>> gather(const Plan& plan, const Executor& executor,
                                                  TensorId ParameterTensors::*pick, double scale) {
  std::map<std::string, std::vector<double>> all;
  std::map<std::string, std::vector<bool>> filled;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const int shard = plan.mesh.coordinate(rank, Axis::tp);
    for (const ParameterTensors& parameter : plan.program_of(rank).parameters) {
      const ParameterSpec& spec = parameter.spec;
      auto& whole = all[spec.name];
      auto& seen = filled[spec.name];
      whole.resize(static_cast<std::size_t>(spec.rows * spec.columns));
      seen.resize(whole.size());
      const std::vector<double> local = executor.read(rank, parameter.*pick);
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(local.size()); ++i) {
        const std::int64_t global = spec.global_index(shard, i);
        if (global < 0) {
          EXPECT_EQ(local[i], 0) << spec.name << " pad row on rank " << rank;
          continue;
        }
        const double value = local[i] * scale;
        if (seen[global]) {
          EXPECT_EQ(whole[global], value) << spec.name << "[" << global << "] on rank " << rank;
        }
        whole[global] = value;
        seen[global] = true;
      }
    }
  }
  for (const auto& [name, seen] : filled) {
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool b) { return b; }))
        << name << " has elements that no rank holds";
  }
  return all;
}

Trained train(const ModelConfig& model, const Mesh& mesh, StepOptions options,
              const TrainOptions& train) {
  const int data_size = mesh.size(Axis::dp);
  options.micro_batches = static_cast<int>(train.global_batch / data_size / options.micro_batch);
  const auto source = make_markov_source(model.vocabulary, 7);
  const auto markov = make_batches(*source, train.global_batch, data_size);
  const Plan plan = plan_step(model, mesh, options);
  const auto executor =
      make_thread_executor(plan, {.init = train.init,
                                  .batches = train.batches ? train.batches : markov.get(),
                                  .timeout_s = 30});
  Trained trained;
  for (int i = 0; i < train.steps; ++i) trained.steps.push_back(*executor->step().training);
  trained.gradients = gather(plan, *executor, &ParameterTensors::gradient,
                             1.0 / static_cast<double>(trained.steps.back().valid_tokens));
  trained.parameters = gather(plan, *executor, &ParameterTensors::value);
  return trained;
}

double largest_error(const std::map<std::string, std::vector<double>>& a,
                     const std::map<std::string, std::vector<double>>& b, double floor) {
  double total = 0;
  for (const auto& [name, values] : b) {
    for (double v : values) total += v * v;
  }
  double worst = 0;
  for (const auto& [name, reference] : b) {
    const auto& values = a.at(name);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
      difference += (values[i] - reference[i]) * (values[i] - reference[i]);
      norm += reference[i] * reference[i];
    }
    worst = std::max(worst,
                     std::sqrt(difference) / std::max(std::sqrt(norm), floor * std::sqrt(total)));
  }
  return worst;
}

}  // namespace mb::test
