#include "parallel/exec/sim_executor.h"

#include "parallel/plan/walk.h"

namespace mb {
namespace {

class SimExecutor final : public Executor {
 public:
  SimExecutor(const Plan& plan, const CostModel& cost) : plan_(plan), cost_(cost) {}
  StepResult step(bool) override { return {.timeline = simulate(plan_, cost_)}; }
  std::optional<MemoryPeak> memory(int) const override { return std::nullopt; }
  std::vector<CommCount> traffic(int) const override { return {}; }
  std::vector<double> read(int, TensorId) const override {
    throw Error("mode=sim moves no data; use mode=threads to read tensors");
  }

 private:
  const Plan& plan_;
  const CostModel& cost_;
};

// Ranks of a stage share a lane.
Timeline by_stage(const Plan& plan, std::vector<std::vector<Span>> lanes) {
  Timeline timeline{.lanes = std::move(lanes)};
  for (int rank = 0; rank < plan.mesh.world(); ++rank)
    timeline.lane_of_rank.push_back(plan.mesh.coordinate(rank, Axis::pp));
  return timeline;
}

}  // namespace

Timeline simulate(const Plan& plan, const CostModel& cost) {
  Hosts hosts{.waits_for_collectives = cost.host_waits_for_collectives()};
  if (cost.has_host()) hosts.launch_ns = [&](const Instruction& i) { return cost.launch_ns(i); };
  return by_stage(plan, Walk(plan, hosts).run([&](int stage, InstructionId id) {
    return cost.duration_ns(plan, stage, plan.programs[stage].instructions[id]);
  }));
}

Timeline replay_on_own_cores(const Plan& plan, const StepResult& measured) {
  require(!measured.cpu_ns.empty(), "a step without CPU times cannot be replayed");
  std::vector<std::vector<std::int64_t>> mean(plan.programs.size());
  const auto ranks = static_cast<std::int64_t>(measured.cpu_ns.size() / plan.programs.size());
  for (std::size_t rank = 0; rank < measured.cpu_ns.size(); ++rank) {
    auto& stage = mean[plan.mesh.coordinate(static_cast<int>(rank), Axis::pp)];
    stage.resize(measured.cpu_ns[rank].size());
    for (std::size_t id = 0; id < stage.size(); ++id) stage[id] += measured.cpu_ns[rank][id];
  }
  return by_stage(
      plan, Walk(plan).run([&](int stage, InstructionId id) { return mean[stage][id] / ranks; }));
}

std::unique_ptr<Executor> make_sim_executor(const Plan& plan, const CostModel& cost) {
  return std::make_unique<SimExecutor>(plan, cost);
}

}  // namespace mb
