// Where the width of a prediction comes from, and what would narrow it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/plan/plan.h"

namespace mb {

// Relative errors of what was fitted, where it was: else those of shipped constants are taken.
struct KnownErrors {
  std::map<std::string, double> curves;  // by group_name()
  double nic = 0, matmul = 0, operations = 0;
  bool host = false;  // its time to launch a kernel is from a trace
};
std::string group_name(CollectiveKind kind, int ranks, int nodes);

struct WidthPart {
  std::string name;     // "all_gather over 16 ranks on 2 nodes", "matmuls by the model", "host"
  std::string measure;  // what would narrow it
  double error = 0;     // relative, of the part
  double effect = 0;    // of that error on the step, relative
  double share = 0;     // of the squares of all effects
};

// Largest first. Each part of the cost model is made slower by its error, and the Plan walked
// again.
std::vector<WidthPart> width_of(const Plan& plan, const Machine& machine, const Stack& stack,
                                const KnownErrors& known);

}  // namespace mb
