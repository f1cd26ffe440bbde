#include "bench/analysis/verify.h"

#include <algorithm>
#include <cmath>

#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/model/data.h"

namespace mb {

namespace {

// Elements of parameters by their place in the unsharded model, each seen once or more.
class Whole {
 public:
  void put(const ParameterSpec& spec, int rank, std::int64_t global, double value) {
    if (global < 0) {
      require(value == 0, "rank ", rank, ": a pad row of ", spec.name, " is ", value, ", not 0");
      return;
    }
    Tensor& tensor = tensors_[spec.name];
    tensor.values.resize(static_cast<std::size_t>(spec.experts * spec.rows * spec.columns));
    tensor.seen.resize(tensor.values.size());
    double& place = tensor.values[global];
    require(!tensor.seen[global] || place == value || (std::isnan(place) && std::isnan(value)),
            "rank ", rank, " holds ", value, " in ", spec.name, "[", global, "], another rank ",
            place);
    place = value;
    tensor.seen[global] = true;
  }

  Unsharded take() {
    Unsharded all;
    for (auto& [name, tensor] : tensors_) {
      require(std::find(tensor.seen.begin(), tensor.seen.end(), false) == tensor.seen.end(), name,
              " has elements that no rank holds");
      all[name] = std::move(tensor.values);
    }
    return all;
  }

 private:
  struct Tensor {
    std::vector<double> values;
    std::vector<bool> seen;
  };
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

Unsharded gather(const Plan& plan, const Executor& executor, Held which, double scale) {
  Whole whole;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const int shard = plan.mesh.coordinate(rank, Axis::tp);
    const int expert_shard = plan.mesh.coordinate(rank, Axis::ep);
    const Program& program = plan.program_of(rank);
    for (std::size_t b = 0; b < program.buckets.size(); ++b) {
      const Bucket& bucket = program.buckets[b];
      const bool main = which == Held::value && bucket.main != kNone;
      const bool all = which == Held::gradient ? bucket.whole_gradient
                       : main                  ? bucket.ways == 1
                                               : bucket.whole_value;
      const std::vector<double> held = executor.read(rank, which == Held::gradient ? bucket.gradient
                                                           : main                  ? bucket.main
                                                                                   : bucket.value);
      const int owner = bucket.ways == 1 ? 0 : plan.mesh.index_in(bucket.owners, rank);
      const std::int64_t begin = owner * bucket.slice(), end = begin + bucket.slice();
      for (const Parameter& parameter : program.parameters) {
        if (parameter.bucket != static_cast<int>(b)) continue;
        const std::int64_t from = std::max(begin, parameter.offset);
        const std::int64_t to = std::min(end, parameter.offset + parameter.spec.local_elements());
        for (std::int64_t i = from; i < to; ++i)
          whole.put(parameter.spec, rank,
                    parameter.spec.global_index(shard, expert_shard, i - parameter.offset),
                    held[all ? i : i - begin] * scale);
      }
    }
  }
  return whole.take();
}

Unsharded gather_gradients(const Plan& plan, const Executor& executor, const Training& training) {
  return gather(plan, executor, Held::gradient,
                1.0 / (static_cast<double>(std::max<std::int64_t>(training.valid_tokens, 1)) *
                       training.loss_scale));
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

StepOptions on_one_rank(const StepOptions& options, std::int64_t global_batch) {
  return {.micro_batch = options.micro_batch,
          .micro_batches = static_cast<int>(global_batch / options.micro_batch),
          .dtype = DType::fp64,
          .dropout = options.dropout,
          .optimizer = options.optimizer};
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 1e-12;
    case DType::bf16:  // 8 bits of mantissa
      return 5e-2;
    case DType::fp16:  // 11
      return 1e-2;
    default:
      return 1e-5;
  }
}

namespace {

struct FirstStep {
  Training training;
  Unsharded gradients;
};

FirstStep first_step_alone(const ModelConfig& model, const StepOptions& alone,
                           const BatchSource& batches, const InitOptions& init) {
  const Plan plan = plan_step(model, Mesh(), alone);
  const auto executor = make_thread_executor(
      plan, {.init = init, .batches = &batches, .timeout_s = 600, .seed = init.seed});
  const Training training = *executor->step().training;
  return {training, gather_gradients(plan, *executor, training)};
}

Verification errors_of(const Training& training, const Unsharded& gradients,
                       const FirstStep& reference) {
  return {.loss_error = std::abs(training.loss / reference.training.loss - 1),
          .norm_error = std::abs(training.gradient_norm / reference.training.gradient_norm - 1),
          .gradient = largest_error(gradients, reference.gradients)};
}

}  // namespace

Verification verify_first_step(const ModelConfig& model, const StepOptions& options,
                               std::int64_t global_batch, const TokenSource& source,
                               const InitOptions& init, const Unsharded& gradients,
                               const Training& training, bool tf32) {
  StepOptions alone = on_one_rank(options, global_batch);
  const auto batches = make_batches(source, global_batch, 1);
  const FirstStep oracle = first_step_alone(model, alone, *batches, init);
  Verification result = errors_of(training, gradients, oracle);
  result.tolerance = tolerance_of(tf32 ? DType::fp16 : options.dtype);
  result.by = "gradients, norm and loss of step 1 on one rank in fp64";
  if (tf32) result.by += ", as far as TF32 rounds";
  if (main_dtype(options.dtype) != options.dtype) {
    // How far storage in 16 bits goes from fp64 depends on the model: one rank tells.
    alone.dtype = options.dtype;
    alone.loss_scale = options.loss_scale;
    const FirstStep rounded = first_step_alone(model, alone, *batches, init);
    const Verification noise = errors_of(rounded.training, rounded.gradients, oracle);
    result.tolerance = 2 * std::max({noise.loss_error, noise.norm_error, noise.gradient.relative});
    result.by += cat(", within twice the error of one rank in ", name_of(options.dtype));
  }
  result.ok = result.loss_error <= result.tolerance && result.norm_error <= result.tolerance &&
              result.gradient.relative <= result.tolerance &&
              training.valid_tokens == oracle.training.valid_tokens;
  return result;
}

}  // namespace mb
