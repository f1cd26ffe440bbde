#include "parallel/exec/sim_executor.h"

#include "parallel/plan/walk.h"

namespace mb {
namespace {

class SimExecutor final : public Executor {
 public:
  SimExecutor(const Plan& plan, const CostModel& cost) : plan_(plan), cost_(cost) {}
  StepResult step() override { return {simulate(plan_, cost_), std::nullopt}; }
  std::optional<MemoryPeak> memory(int) const override { return std::nullopt; }
  std::vector<GroupTraffic> traffic(int) const override { return {}; }
  std::vector<double> read(int, TensorId) const override {
    throw Error("mode=sim moves no data; use mode=threads to read tensors");
  }

 private:
  const Plan& plan_;
  const CostModel& cost_;
};

}  // namespace

Timeline simulate(const Plan& plan, const CostModel& cost) {
  Timeline timeline;
  timeline.lanes = Walk(plan).run([&](int stage, InstructionId id) {
    return cost.duration_ns(plan, stage, plan.programs[stage].instructions[id]);
  });
  for (int rank = 0; rank < plan.mesh.world(); ++rank)
    timeline.lane_of_rank.push_back(plan.mesh.coordinate(rank, Axis::pp));
  return timeline;
}

std::unique_ptr<Executor> make_sim_executor(const Plan& plan, const CostModel& cost) {
  return std::make_unique<SimExecutor>(plan, cost);
}

}  // namespace mb
