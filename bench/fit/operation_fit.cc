#include "bench/fit/operation_fit.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "bench/analysis/stats.h"
#include "bench/fit/collective_fit.h"
#include "parallel/cost/op_cost.h"
#include "parallel/cost/stack.h"
#include "workloads/base/error.h"
#include "workloads/ops/op.h"

namespace mb {

std::optional<Op> matmul_named(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  long m = 0, n = 0, k = 0;
  if (std::sscanf(text.c_str(), "matmul %ldx%ldx%ld", &m, &n, &k) != 3) return std::nullopt;
  Op op{Matmul{m, n, k}, DType::fp32};
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp64})
    if (text.ends_with(cat(' ', name_of(dtype)))) op.dtype = dtype;
  return op;
}

namespace {

bool has_layout(std::string_view text) {
  for (const std::string_view layout : {"nn", "nt", "tn", "tt"})
    if (text.find(layout) != std::string_view::npos) return true;
  return false;
}

void fit_matmuls(const std::vector<std::pair<Op, double>>& matmuls, Machine& machine,
                 OperationsFit& fit) {
  const std::size_t wanted = rows_wanted(3);
  if (matmuls.size() < wanted) {
    fit.refused.push_back(cat("matmul_efficiency, memory_efficiency, launch_us: ", matmuls.size(),
                              " different matmuls; they take ", wanted));
    return;
  }
  std::vector<double> measured;
  for (const auto& [op, seconds] : matmuls) measured.push_back(seconds);
  Machine tried = machine;
  const Stack stack;
  const std::vector<Constant> constants = {
      {"matmul_efficiency", machine.matmul_efficiency, 0.01, 1},
      {"memory_efficiency", machine.memory_efficiency, 0.01, 1},
      {"launch_us", std::max(0.5, machine.launch_us), 1e-3, 100}};
  fit.matmul =
      fit_constants(constants, measured, [&](std::span<const double> values, std::size_t row) {
        tried.matmul_efficiency = values[0], tried.memory_efficiency = values[1];
        tried.launch_us = values[2];
        return op_seconds(matmuls[row].first, tried, stack);
      });
  machine.matmul_efficiency = fit.matmul->values[0];
  machine.memory_efficiency = fit.matmul->values[1];
  machine.launch_us = fit.matmul->values[2];
  for (std::size_t c = 0; c < 2; ++c) {
    if (fit.matmul->values[c] < 0.999) continue;
    fit.at_bounds.push_back(cat(constants[c].name, " is at its bound of 1: the machine's ",
                                c == 0 ? "peak for this dtype" : "memory_gb_per_s",
                                " is less than what was measured; give more"));
  }
  machine.measured.sources["matmul_efficiency, memory_efficiency, launch_us"] =
      cat(matmuls.size(), " matmuls of ", fit.source);
}

}  // namespace

OperationsFit fit_operations(std::span<const OperationTime> times, Machine& machine) {
  OperationsFit fit;
  if (times.empty()) return fit;
  fit.source = sources_of(times);
  std::map<std::string, std::vector<double>> by_op;
  for (const OperationTime& time : times) {
    // Without a layout, as people write it: of any.
    const std::optional<Op> matmul = matmul_named(time.time.op);
    const bool plain = matmul && !has_layout(time.time.op);
    by_op[plain ? to_text(*matmul) : time.time.op].push_back(time.time.us);
  }
  std::vector<std::pair<Op, double>> matmuls;
  machine.measured.ops.clear();
  for (const auto& [name, us] : by_op) {
    machine.measured.ops.push_back({name, median(us)});
    const std::optional<Op> matmul = matmul_named(name);
    if (matmul && machine.peak_tflops(matmul->dtype) > 0)
      matmuls.emplace_back(*matmul, 1e-6 * median(us));
  }
  fit.operations = static_cast<int>(by_op.size());
  fit.matmuls = static_cast<int>(matmuls.size());
  machine.op_times = "measured";
  machine.measured.sources["measured_ops"] = cat(fit.operations, " operations of ", fit.source);
  fit_matmuls(matmuls, machine, fit);
  return fit;
}

int fit_comm_times(std::span<const StepCommTime> times, Machine& machine) {
  if (times.empty()) return 0;
  const auto alike = [](CommTime a, const CommTime& b) {
    a.us = b.us;
    return a == b;
  };
  std::vector<std::vector<double>> us;  // by measured.comm
  std::vector<CommTime>& comm = machine.measured.comm;
  comm.clear();
  for (const StepCommTime& row : times) {
    auto found = std::find_if(comm.begin(), comm.end(),
                              [&](const CommTime& known) { return alike(known, row.time); });
    if (found == comm.end()) found = comm.insert(found, row.time), us.emplace_back();
    us[found - comm.begin()].push_back(row.time.us);
  }
  for (std::size_t i = 0; i < comm.size(); ++i) comm[i].us = median(us[i]);
  machine.comm_times = "measured";
  machine.measured.sources["measured_comm"] =
      cat(comm.size(), " collectives and messages of steps of ", sources_of(times));
  return static_cast<int>(comm.size());
}

}  // namespace mb
