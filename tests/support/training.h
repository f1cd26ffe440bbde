// Trains a small model on a mesh of threads, or of the MPI ranks that this program is one of, and
// gathers what the ranks hold into unsharded tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/analysis/verify.h"
#include "bench/cli/case.h"
#include "parallel/exec/executor.h"
#include "workloads/model/data.h"

namespace mb::test {

struct Trained {
  Unsharded gradients;   // of the last step, divided by the valid tokens, not clipped
  Unsharded parameters;  // after the last step
  std::vector<Training> steps;
};

struct TrainOptions {
  int steps = 1;
  std::int64_t global_batch = 8;
  const BatchSource* batches = nullptr;  // default: the Markov source
  InitOptions init{.seed = 1, .perturbed = true};
  Delays delays = {};
  bool poison = false;
  bool on_threads = false;  // of this process, under mpirun too
  bool on_cpu = false;      // whatever devices() says
  bool graph = false;       // of GPUs, as the case's key
};

// Under mpirun a case runs where it has as many ranks as were started,
// and rank 0 judges.
bool runs_here(const Case& c);
bool judges();

// Ranks that have taken no step yet. `options.micro_batches` is set from the global batch.
class Trainer {
 public:
  Trainer(const ModelConfig& model, const Mesh& mesh, StepOptions options,
          const TrainOptions& train);
  Training step() { return *executor_->step().training; }
  Unsharded gradients(const Training& training) const {
    return gather_gradients(plan_, *executor_, training);
  }
  Unsharded parameters() const { return gather(plan_, *executor_, Held::value); }
  const Plan& plan() const { return plan_; }
  const Executor& executor() const { return *executor_; }

 private:
  std::unique_ptr<TokenSource> source_;
  std::unique_ptr<BatchSource> markov_;
  Plan plan_;
  std::unique_ptr<World> hosts_, world_;  // where devices communicate by themselves
  std::unique_ptr<Executor> executor_;
};

// After every step, under mpirun after the last, ranks that hold the same element have to hold the
// same bits.
Trained train(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
              const TrainOptions& train);

// The words of a case, "model=gpt-tiny mesh=dp2.tp2 zero=2"; its global batch is that of `train`.
Case case_of(const std::string& words);
Trained train(const Case& c, TrainOptions train);
// The same without parallelism, in fp64, on a CPU; kept for the next call that asks for the same.
const Trained& oracle_of(const Case& c, TrainOptions train);
// Gradients, parameters, norm, loss and tokens of every step, within `tolerance`.
void expect_equal(const Trained& trained, const Trained& oracle, double tolerance);

}  // namespace mb::test
