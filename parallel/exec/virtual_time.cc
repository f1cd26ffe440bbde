#include "parallel/exec/virtual_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/exec/fluid.h"

namespace mb {
namespace {

class Clockwork {
 public:
  Clockwork(const Plan& plan, const RankClasses& classes, const StepCosts& costs) : costs_(costs) {
    timeline_.lane_of_rank = classes.of_rank();
    timeline_.lanes.resize(classes.count());
    for (int c = 0; c < classes.count(); ++c) {
      const RankClasses::Class& of = classes.at(c);
      const Program& program = plan.programs[of.stage];
      Lane lane{.program = &program, .spans = &timeline_.lanes[c]};
      lane.spans->resize(program.instructions.size());
      lane.free_ns.fill(0);
      if (is_slower(of)) own_.push_back(durations_of(plan, classes, c, costs));
      lane.duration_ns = is_slower(of) ? own_.back().data() : costs.duration_ns[of.stage].data();
      if (!costs.launched_ns.empty()) {
        lane.launched_ns = costs.launched_ns[of.stage].data();
        lane.waited_at = host_waited_at(program, costs.host_waits);
      }
      lanes_.push_back(std::move(lane));
    }
  }

  Timeline run(const WalkOrder& order) {
    for (const WalkEvent& event : order.events) {
      if (event.kind == WalkEvent::Kind::meet) {
        meet(order.parties_of(event.id));
        continue;
      }
      Lane& lane = lanes_[event.of];
      Span& span = (*lane.spans)[event.id];
      span.start_ns = start_of(lane, event.id);
      if (event.kind == WalkEvent::Kind::run)
        end(lane, event.id, span.start_ns + lane.duration_ns[event.id]);
    }
    return std::move(timeline_);
  }

 private:
  struct Lane {
    const Program* program = nullptr;
    std::vector<Span>* spans = nullptr;
    const std::int64_t* duration_ns = nullptr;
    const std::int64_t* launched_ns = nullptr;  // null: launching takes no time
    std::vector<InstructionId> waited_at;
    std::array<std::int64_t, kStreams> free_ns;
  };

  static bool is_slower(const RankClasses::Class& of) {
    return of.slower != 1 || !of.messages_slower.empty();
  }

  std::int64_t start_of(const Lane& lane, InstructionId id) const {
    const Instruction& instruction = lane.program->instructions[id];
    std::int64_t start = lane.free_ns[static_cast<int>(instruction.stream)];
    for (const InstructionId before : lane.program->after(instruction))
      start = std::max(start, (*lane.spans)[before].end_ns + costs_.handoff_ns);
    if (lane.launched_ns == nullptr) return start;
    const InstructionId at = lane.waited_at[id];
    const std::int64_t launched =
        lane.launched_ns[id] +
        (at == kNone ? 0 : (*lane.spans)[at].start_ns - lane.launched_ns[at]);
    return std::max(start, launched);
  }

  void end(Lane& lane, InstructionId id, std::int64_t end_ns) const {
    (*lane.spans)[id].end_ns = end_ns;
    lane.free_ns[static_cast<int>(lane.program->instructions[id].stream)] = end_ns + costs_.gap_ns;
  }

  void meet(std::span<const Party> parties) {
    std::int64_t arrival = 0, duration = 0;
    for (const Party& party : parties) {
      arrival = std::max(arrival, (*lanes_[party.of].spans)[party.id].start_ns);
      duration = std::max(duration, lanes_[party.of].duration_ns[party.id]);
    }
    for (const Party& party : parties) end(lanes_[party.of], party.id, arrival + duration);
  }

  const StepCosts& costs_;
  Timeline timeline_;
  std::vector<Lane> lanes_;  // by class
  std::vector<std::vector<std::int64_t>> own_;
};

}  // namespace

StepCosts costs_of(const Plan& plan, const CostModel& cost) {
  StepCosts costs{.host_waits = !cost.has_host() ? HostWaits::never
                                : cost.host_waits_for_collectives()
                                    ? HostWaits::messages_and_collectives
                                    : HostWaits::messages};
  costs.comm_slowed_by = cost.comm_slowed_by();
  costs.gap_ns = cost.gap_ns();
  costs.handoff_ns = cost.handoff_ns();
  for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage) {
    const Program& program = plan.programs[stage];
    auto& durations = costs.duration_ns.emplace_back();
    durations.reserve(program.instructions.size());
    for (const Instruction& instruction : program.instructions)
      durations.push_back(cost.duration_ns(plan, stage, instruction));
    if (cost.has_interference()) {
      auto& beside = costs.interference.emplace_back();
      for (const Instruction& instruction : program.instructions)
        beside.push_back(cost.interference(plan, stage, instruction));
    }
    if (!cost.has_host()) continue;
    auto& launched = costs.launched_ns.emplace_back();
    launched.reserve(program.instructions.size());
    std::int64_t now = 0;
    for (const Instruction& instruction : program.instructions)
      launched.push_back(now += cost.launch_ns(instruction));
  }
  return costs;
}

std::vector<std::int64_t> durations_of(const Plan& plan, const RankClasses& classes, int of,
                                       const StepCosts& costs) {
  const RankClasses::Class& self = classes.at(of);
  std::vector<std::int64_t> durations = costs.duration_ns[self.stage];
  const auto& instructions = plan.programs[self.stage].instructions;
  for (std::size_t id = 0; id < durations.size(); ++id) {
    double slower = 1;
    const Action& action = instructions[id].action;
    if (std::holds_alternative<Compute>(action)) {
      slower = self.slower;
    } else if (const auto* collective = std::get_if<Collective>(&action)) {
      slower = self.groups[classes.index_of(collective->group)].slower;
    } else if (!self.messages_slower.empty() && !std::holds_alternative<Copy>(action)) {
      const auto* send = std::get_if<Send>(&action);
      slower = self.messages_slower[send ? send->to : std::get<Recv>(action).from];
    }
    if (slower != 1) durations[id] = std::llround(static_cast<double>(durations[id]) * slower);
  }
  return durations;
}

Timeline timeline_of(const Plan& plan, const RankClasses& classes, const StepCosts& costs,
                     const WalkOrder& order) {
  return Clockwork(plan, classes, costs).run(order);
}

Timeline timeline_of(const Plan& plan, const RankClasses& classes, const StepCosts& costs) {
  if (!costs.interference.empty()) return fluid_timeline(plan, classes, costs);
  return timeline_of(plan, classes, costs, walk(plan, classes, costs.host_waits));
}

}  // namespace mb
