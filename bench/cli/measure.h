// Runs a case and collects all that a report needs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/run_report.h"
#include "bench/analysis/verify.h"
#include "bench/cli/case.h"
#include "bench/cli/trace_steps.h"
#include "parallel/device/cuda_device.h"
#include "parallel/exec/executor.h"

namespace mb {

struct Measured {
  Plan plan;
  RunResults results;  // of the recorded steps
  std::vector<Timeline>
      on_own_cores;  // the same steps replayed with a core for every rank; empty in virtual time
  std::vector<Training> training;  // of all steps, the warm-up included; empty in virtual time
  std::optional<Verification> verification;
  std::string not_verified;     // why there is none
  std::string data;             // where tokens came from
  std::vector<CudaFacts> cuda;  // devices of this process's machine, while its ranks ran
  std::vector<std::string> cuda_attention;  // what it ran on there
  std::optional<std::string>
      interrupted;                     // where it was stopped, with the recorded steps until then
  TracedSteps traced;                  // after the recorded ones; their training is not kept
  std::optional<double> entropy_nats;  // the least loss that any model can reach on it, where known
};

// Called after each step, with the number done and to do; false stops the run, which then throws
// Exit(130) if no step was recorded yet.
using Progress = std::function<bool(int done, int total)>;

// Why the first step of a case is not held to one rank in fp64; empty if it is.
std::string reason_not_to_verify(const Case& c);

// Throws Exit: 4 if the data cannot be read, 3 if a rank fails; OutOfMemory.
Measured measure(const Case& c, const Progress& progress);
// One step on ranks of this machine, neither warmed up nor checked: for --run, where no time is
// asked for. Throws Error with mode=sim.
Measured measure_one_step(Case c);

}  // namespace mb
