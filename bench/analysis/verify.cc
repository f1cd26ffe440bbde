#include "bench/analysis/verify.h"

#include <algorithm>
#include <cmath>

#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/model/data.h"

namespace mb {

Unsharded gather(const Plan& plan, const Executor& executor, TensorId ParameterTensors::*which,
                 double scale) {
  Unsharded all;
  std::map<std::string, std::vector<bool>> held;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const int shard = plan.mesh.coordinate(rank, Axis::tp);
    for (const ParameterTensors& parameter : plan.program_of(rank).parameters) {
      const ParameterSpec& spec = parameter.spec;
      std::vector<double>& whole = all[spec.name];
      std::vector<bool>& seen = held[spec.name];
      whole.resize(static_cast<std::size_t>(spec.rows * spec.columns));
      seen.resize(whole.size());
      const std::vector<double> local = executor.read(rank, parameter.*which);
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(local.size()); ++i) {
        const std::int64_t global = spec.global_index(shard, i);
        const double value = local[i] * scale;
        if (global < 0) {
          require(value == 0, "rank ", rank, ": a pad row of ", spec.name, " is ", value,
                  ", not 0");
          continue;
        }
        require(!seen[global] || whole[global] == value ||
                    (std::isnan(whole[global]) && std::isnan(value)),
                "rank ", rank, " holds ", value, " in ", spec.name, "[", global, "], another rank ",
                whole[global]);
        whole[global] = value;
        seen[global] = true;
      }
    }
  }
  for (const auto& [name, seen] : held) {
    require(std::find(seen.begin(), seen.end(), false) == seen.end(), name,
            " has elements that no rank holds");
  }
  return all;
}

Unsharded gather_gradients(const Plan& plan, const Executor& executor, const Training& training) {
  return gather(plan, executor, &ParameterTensors::gradient,
                1.0 / static_cast<double>(std::max<std::int64_t>(training.valid_tokens, 1)));
}

LargestError largest_error(const Unsharded& values, const Unsharded& reference, double floor) {
  double total = 0;
  for (const auto& [name, tensor] : reference) {
    for (double v : tensor) total += v * v;
  }
  LargestError worst;
  for (const auto& [name, expected] : reference) {
    const auto found = values.find(name);
    require(found != values.end() && found->second.size() == expected.size(), "tensor ", name,
            " is missing or has another size");
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += (found->second[i] - expected[i]) * (found->second[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    const double relative =
        std::sqrt(difference) / std::max(std::sqrt(norm), floor * std::sqrt(total));
    if (!(relative <= worst.relative)) worst = {relative, name};  // a NaN is the worst of all
  }
  return worst;
}

Verification verify_first_step(const ModelConfig& model, const StepOptions& options,
                               std::int64_t global_batch, const TokenSource& source,
                               const InitOptions& init, const Unsharded& gradients,
                               const Training& training) {
  StepOptions alone = options;
  alone.dtype = DType::fp64;
  alone.micro_batches = static_cast<int>(global_batch / options.micro_batch);
  const auto batches = make_batches(source, global_batch, 1);
  const Plan plan = plan_step(model, Mesh(), alone);
  const auto oracle =
      make_thread_executor(plan, {.init = init, .batches = batches.get(), .timeout_s = 600});
  const Training reference = *oracle->step().training;

  Verification result{.tolerance = options.dtype == DType::fp64 ? 1e-12 : 1e-5,
                      .by = "gradients, norm and loss of step 1 on one rank in fp64"};
  result.loss_error = std::abs(training.loss / reference.loss - 1);
  result.norm_error = std::abs(training.gradient_norm / reference.gradient_norm - 1);
  result.gradient = largest_error(gradients, gather_gradients(plan, *oracle, reference));
  result.ok = result.loss_error <= result.tolerance && result.norm_error <= result.tolerance &&
              result.gradient.relative <= result.tolerance &&
              training.valid_tokens == reference.valid_tokens;
  return result;
}

}  // namespace mb
