#include "parallel/exec/sim_executor.h"

#include "parallel/exec/virtual_time.h"

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

}  // namespace

Timeline simulate(const Plan& plan, const CostModel& cost, const Imbalance& imbalance) {
  return timeline_of(plan, RankClasses::folded(plan, imbalance), costs_of(plan, cost));
}

Timeline simulate_each_rank(const Plan& plan, const CostModel& cost, const Imbalance& imbalance) {
  return timeline_of(plan, RankClasses::unfolded(plan, imbalance), costs_of(plan, cost));
}

Timeline replay_on_own_cores(const Plan& plan, const StepResult& measured) {
  require(!measured.cpu_ns.empty(), "a step without CPU times cannot be replayed");
  StepCosts mean;
  for (const Program& program : plan.programs)
    mean.duration_ns.emplace_back(program.instructions.size());
  const auto ranks = static_cast<std::int64_t>(measured.cpu_ns.size() / plan.programs.size());
  for (std::size_t rank = 0; rank < measured.cpu_ns.size(); ++rank) {
    auto& stage = mean.duration_ns[plan.mesh.coordinate(static_cast<int>(rank), Axis::pp)];
    for (std::size_t id = 0; id < stage.size(); ++id) stage[id] += measured.cpu_ns[rank][id];
  }
  for (auto& stage : mean.duration_ns) {
    for (std::int64_t& ns : stage) ns /= ranks;
  }
  return timeline_of(plan, RankClasses::by_stage(plan), mean);
}

std::unique_ptr<Executor> make_sim_executor(const Plan& plan, const CostModel& cost) {
  return std::make_unique<SimExecutor>(plan, cost);
}

}  // namespace mb
