#include "parallel/strategy/step.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <numeric>
#include <ostream>
#include <thread>

#include "parallel/strategy/layout.h"
#include "parallel/strategy/stage.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Parts of messages, worked out where a rule is broken and the message is written: a step is
// checked each time that it is planned.
struct Divisors {  // "1, 2, 4"
  std::int64_t n;
};
std::ostream& operator<<(std::ostream& out, Divisors of) {
  int width = 0;
  for (std::int64_t d = 1; d <= of.n && width < 60; ++d) {
    if (of.n % d != 0) continue;
    const std::string text = cat(width == 0 ? "" : ", ", d);
    width += static_cast<int>(text.size());
    out << text;
  }
  return out;
}
struct TextOf {
  const Mesh& mesh;
};
std::ostream& operator<<(std::ostream& out, TextOf of) { return out << of.mesh.to_text(); }

Program build_program(Stage& stage, const std::vector<Slot>& slots,
                      const std::vector<Receive>& receives) {
  std::size_t steps = 0, tensors = 0;
  for (const std::vector<PreparedBlock>& chunk : stage.blocks) {
    for (const PreparedBlock& block : chunk) {
      steps += block.forward.size() + block.backward.size() + block.replay.size();
      tensors += block.instances.size() + 2;
    }
  }
  const auto micro_batches = static_cast<std::size_t>(stage.options.micro_batches);
  stage.builder.reserve((steps + 6) * micro_batches + 256, (tensors + 6) * micro_batches + 256);

  stage.builder.emit(Stream::compute, stage.label(Pass::input, stage.sites.scalars),
                     Compute{stage.ops.start_step}, {stage.scalars}, {stage.scalars});
  if (stage.options.overlap.gather) emit_parameter_gathers(stage);
  emit_schedule(stage, slots, receives);
  emit_tied_sum(stage);
  emit_optimizer(stage);
  stage.builder.program().slots = slots;
  return stage.builder.finish();
}

void check_tensor_ranks(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  const int tp = mesh.size(Axis::tp);
  const auto divides = [&](std::int64_t what, const char* name) {
    require(what % tp == 0, "mesh=", TextOf{mesh}, ": tp=", tp, " does not divide model.", name,
            "=", what, "; legal tp: ", Divisors{what});
  };
  divides(model.heads, "heads");
  divides(model.ffn, "ffn");
  require(model.kv_heads % tp == 0 || tp % model.kv_heads == 0, "mesh=", TextOf{mesh}, ": tp=", tp,
          " neither divides model.kv_heads=", model.kv_heads, " nor is a multiple of them");
  const std::int64_t rows = options.micro_batch * model.sequence / mesh.size(Axis::cp);
  require(!options.sequence_parallel || rows % tp == 0, "sequence_parallel=on: the ", rows,
          " tokens of a micro-batch on a rank do not divide by tp=", tp,
          "; legal tp: ", Divisors{rows});
}

void check_tensor_chunks(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  const std::int64_t rows = options.micro_batch * model.sequence / mesh.size(Axis::cp) /
                            (options.sequence_parallel ? mesh.size(Axis::tp) : 1);
  require(options.tensor_chunks > 0 && rows % options.tensor_chunks == 0,
          "tensor_chunks=", options.tensor_chunks, " does not divide the ", rows,
          " tokens of a micro-batch on a rank; legal: ", Divisors{rows});
}

void check_context_ranks(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  const int cp = mesh.size(Axis::cp);
  if (cp == 1) return;
  const int parts = options.context == ContextKind::ring ? 2 * cp : cp;
  require(model.sequence % parts == 0, "mesh=", TextOf{mesh}, ": model.sequence=", model.sequence,
          " does not divide into ", parts,
          options.context == ContextKind::ring ? " parts, two for each context rank (zig-zag)"
                                               : " parts, one for each context rank",
          "; legal cp: ", Divisors{std::max<std::int64_t>(1, model.sequence / (parts / cp))});
  if (options.context == ContextKind::ring) return;
  const std::int64_t heads = model.heads / mesh.size(Axis::tp),
                     kv_heads = local_kv_heads(model, mesh.size(Axis::tp));
  require(heads % cp == 0 && kv_heads % cp == 0, "mesh=", TextOf{mesh},
          ": context=ulysses divides the ", heads, " heads and ", kv_heads,
          " key/value heads of a tensor rank over cp=", cp,
          "; legal cp: ", Divisors{std::gcd(heads, kv_heads)}, ", or context=ring");
}

void check_expert_ranks(const ModelConfig& model, const Mesh& mesh) {
  const int ep = mesh.size(Axis::ep);
  require(model.experts > 1 || ep == 1, "mesh=", TextOf{mesh}, ": ep=", ep,
          " divides experts, and model.experts=1 has none; use dp");
  require(model.experts % ep == 0, "mesh=", TextOf{mesh}, ": ep=", ep,
          " does not divide model.experts=", model.experts,
          "; legal ep: ", Divisors{model.experts});
  require(
      model.capacity_factor == 0 || mesh.size(Axis::cp) == 1,
      "model.capacity_factor=", model.capacity_factor,
      " counts the tokens of whole sequences, which cp divides; give cp=1 or capacity_factor=0");
}

}  // namespace

void check_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options) {
  check_model(model);
  require(options.micro_batch > 0, "micro_batch=", options.micro_batch, " has to be at least 1");
  require(options.micro_batches > 0, "a data rank needs at least 1 micro-batch, not ",
          options.micro_batches);
  require(options.bucket_bytes > 0, "bucket_bytes=", options.bucket_bytes, " has to be at least 1");
  const PipelineShape shape = pipeline_shape(mesh, options);
  if (options.user_schedule.slots.empty()) {
    find_schedule(options.schedule).check(shape);
  } else {
    const UserSchedule& user = options.user_schedule;
    require(static_cast<int>(user.slots.size()) == shape.ranks &&
                user.micro_batches == options.micro_batches,
            "schedule=", options.schedule, " is for ", user.slots.size(), " stages and ",
            user.micro_batches, " micro-batches; the case has pp=", shape.ranks, " and ",
            options.micro_batches);
  }
  require(options.user_schedule.slots.empty() ||
              ((options.chunks == 0 || options.chunks == shape.chunks) && options.group == 0),
          "schedule=", options.schedule, " has ", shape.chunks,
          " chunks and rounds of its own; leave chunks= and group= out");
  require(options.recompute_layers.first < model.layers &&
              options.recompute_micro_batches.first < options.micro_batches,
          "recompute_layers= and recompute_micro_batches= start at ",
          options.recompute_layers.first, " and ", options.recompute_micro_batches.first,
          "; there are ", model.layers, " layers and ", options.micro_batches,
          " micro-batches, counted from 0");
  stage_layers(model, mesh, options);
  check_tensor_ranks(model, mesh, options);
  check_tensor_chunks(model, mesh, options);
  check_context_ranks(model, mesh, options);
  check_expert_ranks(model, mesh);
  require(options.zero >= 0 && options.zero <= 3, "zero=", options.zero, ": give 0, 1, 2 or 3");
  require(mesh.size(Axis::rdp) == 1 || options.zero > 0, "mesh=", TextOf{mesh},
          ": rdp replicates what ZeRO divides over dp; give zero=1, 2 or 3, or dp alone");
  require(options.dropout >= 0 && options.dropout < 1, "dropout=", options.dropout,
          ": give a probability of at least 0 and below 1");
  require(options.dtype != DType::int32, "dtype=int32 has no training step");
  require(options.loss_scale > 0, "loss_scale=", options.loss_scale, ": give a number above 0");
  const double largest =
      static_cast<double>(options.micro_batch) * static_cast<double>(model.sequence) *
      static_cast<double>(std::max(
          {model.hidden, 2 * model.ffn, model.vocabulary, 3 * model.heads * model.head_dim}));
  require(largest < 0x1p50, "micro_batch=", options.micro_batch, " of ", model.sequence,
          " tokens makes a tensor of ", largest, " elements; give a smaller one");
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
  Plan plan{.mesh = mesh,
            .placement = placement_of(options),
            .micro_batches = options.micro_batches,
            .micro_batch = options.micro_batch};
  const std::vector<std::vector<Slot>> slots = slots_of_step(mesh, options);
  const std::vector<std::vector<Receive>> receives = receive_order(slots, plan.placement);
  const std::vector<int> layers = stage_layers(model, mesh, options);
  Interner interner;
  std::vector<std::unique_ptr<Stage>> stages;
  for (int s = 0; s < mesh.size(Axis::pp); ++s)
    stages.push_back(std::make_unique<Stage>(model, plan.mesh, options, layers, s, interner));
  plan.ops = interner.take_ops();
  plan.names = interner.take_names();
  plan.programs.resize(stages.size());

  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t s = next++; s < stages.size() && !failed; s = next++) {
      try {
        plan.programs[s] = build_program(*stages[s], slots[s], receives[s]);
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
