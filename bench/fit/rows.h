// What inputs of a fit come down to, whatever file they are from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/cost/measured.h"
#include "parallel/cost/network.h"

namespace mb {

struct CollectiveTime {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupSpread spread;
  double bytes = 0, seconds = 0;
  std::string source;  // the file
};

struct OperationTime {
  OpTime time;
  std::string source;
};

struct StepCommTime {
  CommTime time;
  std::string source;
};

struct StepTime {
  std::string case_line;
  double seconds = 0;
  std::string source, where;  // the file; with the line
};

// Of one trace: how fast its host launches, how long the device stands between kernels that were
// launched in time, what passes from one stream to another, and how much kernels of one name and
// shape differ.
struct TraceFacts {
  std::string source;
  bool own = false;  // of this program: what is said of kernels is of instructions
  int launches = 0, kernels = 0, gaps = 0, handoffs = 0, repeated = 0;
  std::optional<double> launch_us, gap_us, handoff_us, jitter;  // jitter: spread of log(duration)
};

struct FitRows {
  std::vector<CollectiveTime> collectives;
  std::vector<OperationTime> operations;
  std::vector<StepCommTime> comm;
  std::vector<StepTime> steps;
  std::vector<TraceFacts> traces;
  std::vector<std::string> notes;  // what was left out of a file, and why
};

// Times below come from outside: finite and above 0, or an Error that names `where`.
double checked_time(double value, const std::string& where);

}  // namespace mb
