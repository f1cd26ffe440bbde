#include "parallel/strategy/step.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "parallel/schedule/schedule.h"
#include "parallel/strategy/stage.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Divisors of n, for messages: "1, 2, 4".
std::string divisors(std::int64_t n) {
  std::string text;
  for (std::int64_t d = 1; d <= n && text.size() < 60; ++d) {
    if (n % d == 0) text += cat(text.empty() ? "" : ", ", d);
  }
  return text;
}

Program build_program(Stage& stage) {
  std::size_t steps = 0, tensors = 0;
  for (const PreparedBlock& block : stage.blocks) {
    steps += block.forward.size() + block.backward_next.size();
    tensors += block.instances.size() + 2;
  }
  const auto micro_batches = static_cast<std::size_t>(stage.options.micro_batches);
  stage.builder.reserve((steps + 6) * micro_batches + 256, (tensors + 6) * micro_batches + 256);

  stage.builder.emit(Stream::compute, stage.label(Pass::input, stage.sites.scalars),
                     Compute{stage.ops.start_step}, {stage.scalars}, {stage.scalars});
  emit_schedule(stage);
  emit_tied_reduction(stage);
  emit_optimizer(stage);
  return stage.builder.finish();
}

}  // namespace

void check_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  check_model(model);
  find_schedule(options.schedule);
  const int tp = mesh.size(Axis::tp), pp = mesh.size(Axis::pp);
  const auto divides = [&](std::int64_t what, const char* name) {
    require(what % tp == 0, "mesh=", mesh.to_text(), ": tp=", tp, " does not divide model.", name,
            "=", what, "; legal tp: ", divisors(what));
  };
  divides(model.heads, "heads");
  divides(model.kv_heads, "kv_heads");
  divides(model.ffn, "ffn");
  require(model.layers % pp == 0, "mesh=", mesh.to_text(), ": pp=", pp,
          " does not divide model.layers=", model.layers, "; legal pp: ", divisors(model.layers));
  require(mesh.size(Axis::cp) == 1 && mesh.size(Axis::ep) == 1, "mesh=", mesh.to_text(),
          ": the axes cp and ep have no strategy here; use dp, pp and tp");
  require(options.micro_batch > 0, "micro_batch=", options.micro_batch, " has to be at least 1");
  require(options.micro_batches > 0, "a data rank needs at least 1 micro-batch, not ",
          options.micro_batches);
  require(options.dtype == DType::fp32 || options.dtype == DType::fp64,
          "dtype=", name_of(options.dtype), " has no training step; use fp32 or fp64");
  const double largest =
      static_cast<double>(options.micro_batch) * static_cast<double>(model.sequence) *
      static_cast<double>(std::max(
          {model.hidden, 2 * model.ffn, model.vocabulary, 3 * model.heads * model.head_dim}));
  require(largest < 0x1p50, "micro_batch=", options.micro_batch, " of ", model.sequence,
          " tokens makes a tensor of ", largest, " elements; give a smaller one");
  require(options.bucket_bytes > 0, "bucket_bytes=", options.bucket_bytes, " has to be at least 1");
}

Plan plan_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  check_step(model, mesh, options);
  // Some 40 instructions a layer and micro-batch; ids are 32 bits, and a plan has to fit into
  // memory.
  constexpr double kMostInstructions = 2e8;
  const double instructions = 40.0 * static_cast<double>(model.layers) * options.micro_batches;
  require(instructions < kMostInstructions, options.micro_batches, " micro-batches of ",
          model.layers, " layers make a plan of about ", instructions, " instructions; at most ",
          kMostInstructions, " are built. Give a larger micro_batch or fewer sequences");
  Plan plan{.mesh = mesh};
  Interner interner;
  std::vector<std::unique_ptr<Stage>> stages;
  for (int s = 0; s < mesh.size(Axis::pp); ++s)
    stages.push_back(std::make_unique<Stage>(model, plan.mesh, options, s, interner));
  plan.ops = interner.take_ops();
  plan.names = interner.take_names();
  plan.programs.resize(stages.size());

  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t s = next++; s < stages.size() && !failed; s = next++) {
      try {
        plan.programs[s] = build_program(*stages[s]);
        stages[s].reset();
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> helpers;
  const std::size_t threads =
      std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), stages.size());
  for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
  return plan;
}

}  // namespace mb
