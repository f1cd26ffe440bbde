// A step's time and memory in closed form: the third of the virtual executors beside the two that
// walk a Plan, for searches over millions of cases.
//
// Blocks are costed once for each shape that ranks can give them (block_form.h), buckets once for
// each layout (rank_data.h). A step of m micro-batches on p ranks, of which the slowest takes C for
// one, is
//
//   m C + idle + hops + what data ranks leave exposed + the optimizer
//
// with the idle time of parallel/schedule/closed_form.h, for 1F1B of unequal stages and messages:
// sum of C and of hops over ranks, and m - 1 rounds of the slowest cycle. walked_s() puts a walk
// over the schedule's slots in place of the first three. Both are estimates: how far they are from
// predict() is tested (error_of).
#pragma once

#include <memory>

#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

struct Estimate {
  double step_s = 0;
  double memory_bytes = 0;  // of the rank that needs most, as StepMemory::total
};

// By what share estimates may be above predict(), which a search has to allow for: a case takes at
// least estimate / (1 + error). What travels beside computation with ZeRO-2 and 3 finds time where
// the pipeline idles, of which the forms know little; pipelines that never settle and hosts that
// launch late or wait are other such cases.
struct EstimateError {
  double form = 0.08, walk = 0.04, memory = 0.06;
};
EstimateError error_of(const Mesh& mesh, const StepOptions& options, const Stack& stack);

class StepParts;  // step_parts.h
struct SharedParts;

// Not for several threads at once.
class ClosedForm {
 public:
  ClosedForm(const ModelConfig& model, const Machine& machine, const Stack& stack);
  // Another for the same question, for a thread beside this one's: what either works out, both
  // have.
  ClosedForm(const ClosedForm& other);
  ~ClosedForm();
  // Of a case that check_step lets pass, all layers and micro-batches of it alike. Fastest where
  // calls that share a mesh follow each other.
  Estimate estimate(const Mesh& mesh, const StepOptions& options);
  double walked_s(const Mesh& mesh, const StepOptions& options);

 private:
  std::shared_ptr<SharedParts> shared_;
  std::unique_ptr<StepParts> parts_;
};

}  // namespace mb
