// A step's time and memory on a machine under a software stack, from the Plan in virtual time:
// one call, some milliseconds, for searches and sweeps over many cases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/cost/cost.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/memory.h"
#include "parallel/cost/stack.h"
#include "parallel/exec/jitter.h"
#include "parallel/mesh/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

// Of as many micro-batches as it takes to fill the pipeline: more live in the same memory.
StepMemory memory_of_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                          const Machine& machine, const Stack& stack);

// 80 % of measured steps lie between; with the reasons why that is wider than for the rows that the
// stack's constants were fitted on: another machine, more nodes, none at all.
struct StepInterval {
  double low_s = 0, high_s = 0;
  std::vector<std::string> extrapolated;
};
StepInterval interval_of(double step_s, const Mesh& mesh, const Machine& machine,
                         const Stack& stack);
// What makes ranks unlike and times spread.
struct StepVariation {
  Imbalance imbalance;
  Jitter jitter;
  std::uint64_t seed = 1;
};

// What such a step does on hardware and virtual time does not know.
std::vector<std::string> not_modelled(const ModelConfig& model, const Mesh& mesh,
                                      const StepOptions& options, const Stack& stack,
                                      const StepVariation& variation);

struct Prediction {
  double step_s = 0;                  // with the imbalance
  std::optional<double> even_step_s;  // without, where there is one
  std::optional<StepSpread> spread;   // with jitter
  StepInterval interval;
  std::vector<std::string> not_modelled;
  double busiest_compute_s = 0;  // of the stage that computes most
  StepMemory memory;
  int simulated_micro_batches = 0;  // the others take as long as the last of these
  OpCoverage ops;
};

// More micro-batches than it takes the pipeline to settle are not walked one by one: once a round
// of them moves all that follows by the same number of nanoseconds, so does every other.
Prediction predict(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                   const Machine& machine, const Stack& stack, const StepVariation& variation = {});

// How many of `micro_batches` are walked at least, and how many a round has.
struct Rounds {
  int walked = 1, round = 1;
};
Rounds rounds_of(const Mesh& mesh, const StepOptions& options);

}  // namespace mb
