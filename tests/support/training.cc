#include "tests/support/training.h"

#include "workloads/model/data.h"

namespace mb::test {

Trained train(const ModelConfig& model, const Mesh& mesh, StepOptions options,
              const TrainOptions& train) {
  const int data_size = mesh.data_size();
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
  trained.gradients = gather_gradients(plan, *executor, trained.steps.back());
  trained.parameters = gather(plan, *executor, &ParameterTensors::value);
  return trained;
}

}  // namespace mb::test
