// A step on MPI ranks in which one of them does not do its part.
//
//   mpirun -n 4 failing_rank throws|sleeps RANK TIMEOUT_S
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "parallel/comm/mpi_world.h"
#include "parallel/exec/executor.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

class FailingBatches final : public BatchSource {
 public:
  FailingBatches(const BatchSource& batches, std::string how)
      : batches_(batches), how_(std::move(how)) {}
  void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    if (step == 1 && how_ == "throws") throw Error("tokens run out");
    if (step == 1 && how_ == "sleeps") std::this_thread::sleep_for(std::chrono::seconds(60));
    batches_.load(step, data_index, micro_batch, batch, sequence, tokens, labels);
  }

 private:
  const BatchSource& batches_;
  const std::string how_;
};

int run(const std::string& how, int failing, double timeout_s) {
  MpiWorld world;
  const ModelConfig model = find_model("gpt-tiny");
  const Mesh mesh = Mesh::parse(cat("dp", world.size()));
  const Plan plan = plan_step(model, mesh, {.micro_batches = 2});
  const auto source = make_markov_source(model.vocabulary, 1);
  const auto batches = make_batches(*source, 2 * world.size(), world.size());
  const FailingBatches own(*batches, world.rank() == failing ? how : "");
  const auto executor = make_live_executor(plan, {.batches = &own, .timeout_s = timeout_s}, world);
  for (int step = 0; step < 3; ++step) executor->step();
  return 0;
}

}  // namespace
}  // namespace mb

int main(int, char** argv) { return mb::run(argv[1], std::atoi(argv[2]), std::atof(argv[3])); }
