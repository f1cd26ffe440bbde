#include "bench/choose/block_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/strategy/step.h"

namespace mb {
namespace {

constexpr int kLayers = 3;  // the one in the middle has neighbours on both sides

// The costs of a Plan, but for collectives, which take the links of a larger mesh.
class LinkedCost final : public CostModel {
 public:
  LinkedCost(const CostModel& own, const MeshLinks& links, double comm_share)
      : own_(own), links_(links), comm_share_(comm_share) {}
  std::int64_t duration_ns(const Plan& plan, int stage, const Instruction& i) const override {
    const auto* collective = std::get_if<Collective>(&i.action);
    if (!collective || collective->group == kWorld) return own_.duration_ns(plan, stage, i);
    const std::int64_t bytes = payload_bytes(plan.programs[stage], i);
    return std::llround(1e9 * links_.seconds(collective->kind, collective->group, bytes) /
                        comm_share_);
  }
  bool has_host() const override { return own_.has_host(); }
  bool host_waits_for_collectives() const override { return own_.host_waits_for_collectives(); }
  std::int64_t launch_ns(const Instruction& i) const override { return own_.launch_ns(i); }
  std::int64_t gap_ns() const override { return own_.gap_ns(); }
  std::int64_t handoff_ns() const override { return own_.handoff_ns(); }
  bool has_interference() const override { return own_.has_interference(); }
  double comm_slowed_by() const override { return own_.comm_slowed_by(); }
  Interference interference(const Plan& plan, int stage, const Instruction& i) const override {
    return own_.interference(plan, stage, i);
  }

 private:
  const CostModel& own_;
  const MeshLinks& links_;
  double comm_share_;
};

Plan small_plan(const StepShape& shape, bool split) {
  ModelConfig model = shape.model;
  model.layers = kLayers;
  Mesh mesh = Mesh::parse(cat("tp", shape.mesh.size(Axis::tp), ".cp", shape.mesh.size(Axis::cp),
                              ".ep", shape.mesh.size(Axis::ep)));
  mesh.set_ranks_per_node(shape.mesh.ranks_per_node());
  StepOptions options = shape.options;
  options.schedule = split ? "zb-h1" : "1f1b";
  options.micro_batches = 1;
  options.chunks = options.group = options.zero = 0;
  options.offload_optimizer = false;
  return plan_step(model, mesh, options);
}

// 0: embedding, 1 to kLayers: layers, then the head.
constexpr int kHead = kLayers + 1, kBlocks = kLayers + 2;
constexpr int kMiddle = 2;
enum Half { kForward, kInputGrad, kWeightGrad, kHalves };

struct Place {
  int half, block;
};

// Where instructions belong, one after the other; half is kHalves for those of the step's end.
class Places {
 public:
  Place of(const Label& label) {
    const int half = half_of(label.pass);
    if (half == kHalves) return {kHalves, 0};
    if (label.layer >= 0) {
      seen_layer_[half] = true;
      return {half, label.layer + 1};
    }
    return {half, seen_layer_[half] == (half == kForward) ? kHead : 0};
  }

 private:
  static int half_of(Pass pass) {
    switch (pass) {
      case Pass::input:
      case Pass::forward:
        return kForward;
      case Pass::recompute:
      case Pass::backward:
      case Pass::input_grad:
        return kInputGrad;
      case Pass::weight_grad:
        return kWeightGrad;
      default:
        return kHalves;
    }
  }
  std::array<bool, kHalves> seen_layer_{};
};

template <class T>
using ByPlace = std::array<std::array<T, kBlocks>, kHalves>;

// By how much each block moves the end of all that came before it, in seconds.
ByPlace<double> spend(const Plan& plan, const CostModel& cost) {
  const Timeline timeline = simulate(plan, cost);
  const Program& program = plan.programs[0];
  ByPlace<double> spent{};
  Places places;
  std::int64_t end = 0;
  for (std::size_t id = 0; id < program.instructions.size(); ++id) {
    const Place place = places.of(program.instructions[id].label);
    if (place.half == kHalves) continue;
    const std::int64_t later = std::max(end, timeline.lanes[0][id].end_ns);
    spent[place.half][place.block] += 1e-9 * static_cast<double>(later - end);
    end = later;
  }
  return spent;
}

// The middle layer for each, and what the ends take beyond it.
void take_seconds(const std::array<double, kBlocks>& spent, double PassSeconds::*pass,
                  BlockForm& form) {
  form.layer.*pass = spent[kMiddle];
  form.embedding.*pass = std::max(0.0, spent[0] + spent[1] - spent[kMiddle]);
  form.head.*pass = std::max(0.0, spent[kHead] + spent[kLayers] - spent[kMiddle]);
}

BlockBytes bytes_of(const Program& program) {
  const Lifetimes lifetimes(program);
  ByPlace<std::int64_t> after{}, most{};  // live at the end of a block, and at most within it
  Places places;
  std::int64_t live = 0;
  const auto on_device = [&](TensorId t) {
    return program.tensors[t].host ? 0 : program.tensors[t].bytes;
  };
  for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
    for (const TensorId t : lifetimes.born_at(id)) live += on_device(t);
    const Place place = places.of(program.instructions[id].label);
    if (place.half < kHalves) {
      std::int64_t& peak = most[place.half][place.block];
      peak = std::max(peak, live);
    }
    for (const TensorId t : lifetimes.dead_after(id)) live -= on_device(t);
    if (place.half < kHalves) after[place.half][place.block] = live;
  }
  const auto& forward = after[kForward];
  const auto& back = after[kInputGrad];
  // Of later blocks, what their weight gradients still wait for.
  const auto pending = [&](int block) {
    return std::max<std::int64_t>(0, back[block] - forward[block - 1]);
  };
  const bool split = after[kWeightGrad][kMiddle] > 0 || most[kWeightGrad][kMiddle] > 0;
  BlockBytes bytes;
  bytes.layer = forward[kMiddle] - forward[kMiddle - 1];
  bytes.embedding = std::max<std::int64_t>(0, forward[1] - bytes.layer);
  bytes.head = std::max<std::int64_t>(0, forward[kHead] - forward[kLayers]);
  bytes.layer_pending =
      split ? std::max<std::int64_t>(0, pending(kMiddle) - pending(kMiddle + 1)) : 0;
  bytes.layer_work = std::max<std::int64_t>(
      0, most[kInputGrad][kMiddle] - forward[kMiddle] - (split ? pending(kMiddle + 1) : 0));
  bytes.head_work = std::max(most[kForward][kHead], most[kInputGrad][kHead]) - forward[kLayers];
  return bytes;
}

}  // namespace

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  forward += other.forward;
  backward += other.backward;
  input_grad += other.input_grad;
  weight_grad += other.weight_grad;
  return *this;
}

PassSeconds operator*(double times, const PassSeconds& one) {
  return {times * one.forward, times * one.backward, times * one.input_grad,
          times * one.weight_grad};
}

struct BlockPlan::Passes {
  Plan plan;
  std::unique_ptr<CostModel> cost;
  BlockBytes bytes;
  Passes(const StepShape& shape, bool split, const Machine& machine, const Stack& stack)
      : plan(small_plan(shape, split)),
        cost(make_roofline_cost(plan, machine, stack)),
        bytes(bytes_of(plan.programs[0])) {}
};

BlockPlan::BlockPlan(const StepShape& shape, bool split, const Machine& machine, const Stack& stack)
    : comm_share_(stack.comm_share) {
  StepShape stays = shape;
  stays.options.offload_activations = false;
  whole_ = std::make_unique<Passes>(stays, false, machine, stack);
  if (split) halves_ = std::make_unique<Passes>(stays, true, machine, stack);
}
BlockPlan::~BlockPlan() = default;

BlockForm BlockPlan::on(const MeshLinks& links) const {
  BlockForm form{.bytes = (halves_ ? halves_ : whole_)->bytes};
  const auto spent = spend(whole_->plan, LinkedCost(*whole_->cost, links, comm_share_));
  take_seconds(spent[kForward], &PassSeconds::forward, form);
  take_seconds(spent[kInputGrad], &PassSeconds::backward, form);
  if (halves_) {
    const auto each = spend(halves_->plan, LinkedCost(*halves_->cost, links, comm_share_));
    take_seconds(each[kInputGrad], &PassSeconds::input_grad, form);
    take_seconds(each[kWeightGrad], &PassSeconds::weight_grad, form);
  }
  return form;
}

double layer_copies_s(const StepShape& shape, const Machine& machine, const Stack& stack) {
  StepShape leaves = shape;
  leaves.options.offload_activations = true;
  const Plan plan = small_plan(leaves, false);
  const auto cost = make_roofline_cost(plan, machine, stack);
  std::int64_t ns = 0;
  for (const Instruction& i : plan.programs[0].instructions) {
    if (std::holds_alternative<Copy>(i.action)) ns += cost->duration_ns(plan, 0, i);
  }
  return 1e-9 * static_cast<double>(ns) / kLayers;
}

}  // namespace mb
