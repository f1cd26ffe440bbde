// Peak memory by class: closed form, plan and allocator side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/theory.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/plan.h"

namespace mb {

// Of one class, its own largest; the classes' peaks do not add up. Of the total, the largest sum.
struct MemoryRow {
  std::string name;  // of the class, or "total"
  std::optional<std::int64_t> closed_form_bytes;
  std::int64_t plan_bytes = 0;
  std::optional<std::int64_t> measured_bytes;
  std::int64_t composition_bytes = 0;  // live when the plan's total peaks: adds up to the total
  std::string explanation;             // where closed form and plan differ, what the plan holds
};

struct MemoryReport {
  int rank = 0, stage = 0;  // the rank with the largest measured total, else planned total
  std::vector<MemoryRow> classes;
  MemoryRow total;
  std::int64_t host_plan_bytes = 0;  // of the second memory space, which no class counts
  std::optional<std::int64_t> host_measured_bytes;
};

// By rank, what Executor::memory says; empty in virtual time.
using MeasuredMemory = std::vector<std::optional<MemoryPeak>>;
MeasuredMemory measured_memory(const Executor& executor, int world);

MemoryReport memory_report(const Plan& plan, const StepShape& shape,
                           const MeasuredMemory& measured);

}  // namespace mb
