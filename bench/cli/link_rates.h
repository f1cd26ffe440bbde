// What the links between the GPUs of a run can do: by the datasheet of their machine, and as NCCL
// reaches it on the very groups that the run communicates over.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/collectives.h"
#include "bench/cli/case.h"
#include "parallel/cost/machine.h"
#include "parallel/plan/plan.h"

namespace mb {

// The machine that has such GPUs: "h100x8" of "NVIDIA H100 80GB HBM3", by the longest name that is
// in theirs.
std::optional<Machine> datasheet_of(std::string gpu);

// Words of `meshbench coll` for an operation that is large enough to be bound by links alone. Where
// no speed is told, a small one: the way is all that counts.
std::vector<std::string> large_collective(const std::string& mesh, const std::string& mode);

// Of a case on GPUs. With NCCL, times each kind of communication of the plan once on all its groups
// at once, on all ranks of this process and together with those of the others.
LinkModel gpu_links(const Case& c, const Plan& plan);

}  // namespace mb
