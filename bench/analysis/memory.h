// Peak memory by class: closed form, plan and allocator side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/memory_form.h"
#include "parallel/exec/executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/plan.h"

namespace mb {

// Of one class, its own largest; the classes' peaks do not add up. Of the total, the largest sum;
// its closed form is the sum of those that there are.
struct MemoryRow {
  std::string name;  // of the class, "total", or "host" for the second memory space
  FormKind form = FormKind::exact;
  std::optional<std::int64_t> closed_form_bytes;
  std::int64_t plan_bytes = 0;
  std::optional<std::int64_t> measured_bytes;
  std::int64_t composition_bytes = 0;  // live when the plan's total peaks: adds up to the total
  std::string explanation;             // where closed form and plan differ, what the plan holds
};

// Tensors of one name that are live together.
struct LiveTensors {
  std::string name;
  int count = 0;
  std::int64_t bytes = 0;
};

struct MemoryReport {
  int rank = 0, stage = 0;  // of the pipeline rank `stage`, the one with the largest measured total
  std::vector<MemoryRow> classes;
  MemoryRow total, host;
  std::int64_t reserved_bytes = 0;  // holes included
  std::string peak;                 // the instruction where the total is largest: "B0 L3 mlp.up"
  std::vector<LiveTensors> live;    // then, largest first
};

// By rank, what Executor::memory says; empty in virtual time.
using MeasuredMemory = std::vector<std::optional<MemoryPeak>>;
MeasuredMemory measured_memory(const Executor& executor, int world);

MemoryReport memory_of_rank(const Plan& plan, const StepShape& shape,
                            const MeasuredMemory& measured, int rank);
// By pipeline rank, of each the fullest rank.
std::vector<MemoryReport> memory_reports(const Plan& plan, const StepShape& shape,
                                         const MeasuredMemory& measured);
// The one with the largest total, measured where it was.
const MemoryReport& fullest(const std::vector<MemoryReport>& reports);
MemoryReport memory_report(const Plan& plan, const StepShape& shape,
                           const MeasuredMemory& measured);

}  // namespace mb
