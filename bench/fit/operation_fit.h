// What operations and communication of measured steps say of a machine: their own times, and the
// efficiencies by which all other matmuls go.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/fit/constants.h"
#include "bench/fit/rows.h"
#include "parallel/cost/machine.h"

namespace mb {

struct OperationsFit {
  int operations = 0, matmuls = 0;     // different ones
  std::optional<ConstantsFit> matmul;  // matmul_efficiency, memory_efficiency, launch_us
  std::string source;
  std::vector<std::string> at_bounds;  // constants that the fit would have put further
  std::vector<std::string> refused;
};

// Puts what it finds into `machine`: the median time of each operation, and the constants where
// there are enough matmuls of a dtype that the machine has a peak for.
OperationsFit fit_operations(std::span<const OperationTime> times, Machine& machine);

// The median time of each collective and message of steps into `machine`; how many different ones.
int fit_comm_times(std::span<const StepCommTime> times, Machine& machine);

// "matmul 512x1536x384 nt bias bf16", with blanks or underscores; nullopt for anything else.
std::optional<Op> matmul_named(std::string_view text);

}  // namespace mb
