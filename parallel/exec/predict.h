// A step's time and memory on a machine under a software stack, from the Plan in virtual time:
// one call, some milliseconds, for searches and sweeps over many cases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/cost/cost.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/mesh/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

struct StepMemory {                // of the rank that has most, bytes
  std::int64_t planned = 0;        // live tensors at their peak
  std::int64_t rounding = 0;       // of the caching allocator: blocks of 512 B, segments of 2 MiB
  std::int64_t fragmentation = 0;  // what it holds in pieces that nothing fits into, at most
  std::int64_t library = 0, context = 0;
  std::int64_t total() const { return planned + rounding + fragmentation + library + context; }
};

StepMemory memory_of(const Plan& plan, const Machine& machine);
// Of as many micro-batches as it takes to fill the pipeline: more live in the same memory.
StepMemory memory_of_step(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                          const Machine& machine);

// 80 % of measured steps lie between; with the reasons why that is wider than for the rows that the
// stack's constants were fitted on: another machine, more nodes, none at all.
struct StepInterval {
  double low_s = 0, high_s = 0;
  std::vector<std::string> extrapolated;
};
StepInterval interval_of(double step_s, const Mesh& mesh, const Machine& machine,
                         const Stack& stack);
// What such a step does on hardware and virtual time does not know.
std::vector<std::string> not_modelled(const ModelConfig& model, const Mesh& mesh,
                                      const StepOptions& options);

struct Prediction {
  double step_s = 0;
  StepInterval interval;
  std::vector<std::string> not_modelled;
  double busiest_compute_s = 0;  // of the stage that computes most
  StepMemory memory;
  int simulated_micro_batches = 0;  // the others take as long as the last of these
  OpCoverage ops;
};

// More micro-batches than it takes the pipeline to settle are not walked one by one: each round of
// them takes as long as the one before.
Prediction predict(const ModelConfig& model, const Mesh& mesh, const StepOptions& options,
                   const Machine& machine, const Stack& stack);

// How many of `micro_batches` are walked, and how many a round has.
struct Rounds {
  int walked = 1, round = 1;
};
Rounds rounds_of(const Mesh& mesh, const StepOptions& options);

}  // namespace mb
