#include "bench/analysis/memory.h"

#include <algorithm>
#include <map>

#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// The instruction at which `memory` holds most.
InstructionId class_peak_at(const Program& program, MemoryClass memory) {
  std::vector<std::int64_t> change(program.instructions.size() + 1);
  for (const Tensor& t : program.tensors) {
    if (t.base != kNone || t.persistent || t.host || t.first == kNone || t.memory != memory)
      continue;
    change[t.first] += t.bytes;
    change[t.last + 1] -= t.bytes;
  }
  std::int64_t live = 0, most = -1;
  InstructionId at = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    live += change[i];
    if (live > most) most = live, at = static_cast<InstructionId>(i);
  }
  return at;
}

// "B0 holds 3 x hidden (1.5 MiB), ...": what is live of a class when it peaks, largest first.
std::string live_at_peak(const Plan& plan, const Program& program, MemoryClass memory) {
  const InstructionId at = class_peak_at(program, memory);
  std::map<std::string, std::pair<int, std::int64_t>> families;
  for (const Tensor& t : program.tensors) {
    const bool live = t.persistent || (t.first != kNone && t.first <= at && at <= t.last);
    if (t.base != kNone || t.host || t.memory != memory || !live) continue;
    auto& [count, bytes] = families[plan.names[t.name]];
    ++count, bytes += t.bytes;
  }
  std::vector<std::pair<std::string, std::pair<int, std::int64_t>>> rows(families.begin(),
                                                                         families.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  std::string text;
  if (!program.instructions.empty()) {
    const Label& label = program.instructions[at].label;
    text = cat("at ", letter_of(label.pass));
    if (label.micro_batch >= 0) text += cat(label.micro_batch);
    text += " it holds ";
  }
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i)
    text += cat(i ? ", " : "", rows[i].second.first, " x ", rows[i].first, " (",
                format_bytes(static_cast<double>(rows[i].second.second)), ")");
  if (rows.size() > kShown) text += cat(" and ", rows.size() - kShown, " more names");
  return text;
}

std::string explain(const Plan& plan, const Program& program, const StepShape& shape,
                    MemoryClass memory, std::int64_t closed, std::int64_t planned) {
  if (closed == planned) return "";
  const std::int64_t difference = planned - closed;
  std::string text = cat("plan ", difference > 0 ? "+" : "-",
                         format_bytes(static_cast<double>(std::abs(difference))), ": ");
  const std::int64_t message = shape.hidden_elements() * size_of(shape.options.dtype);
  if (memory == MemoryClass::workspace)
    text += "temporaries, messages and step scalars, which the textbook form leaves out; ";
  else if (memory == MemoryClass::activation && difference > 0 && difference % message == 0)
    text += cat(difference / message,
                " x s b h: inputs received ahead and outputs not yet sent, which the textbook form "
                "leaves out; ");
  return text + live_at_peak(plan, program, memory);
}

int worst_rank(const Plan& plan, const MeasuredMemory& measured,
               const std::vector<MemoryPeak>& planned) {
  int worst = 0;
  std::int64_t most = -1;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const bool known = rank < static_cast<int>(measured.size()) && measured[rank];
    const std::int64_t total = known ? measured[rank]->total_bytes
                                     : planned[plan.mesh.coordinate(rank, Axis::pp)].total_bytes;
    if (total > most) most = total, worst = rank;
  }
  return worst;
}

}  // namespace

MeasuredMemory measured_memory(const Executor& executor, int world) {
  MeasuredMemory measured;
  for (int rank = 0; rank < world; ++rank) measured.push_back(executor.memory(rank));
  return measured;
}

MemoryReport memory_report(const Plan& plan, const StepShape& shape,
                           const MeasuredMemory& measured) {
  std::vector<MemoryPeak> planned;
  for (const Program& program : plan.programs) planned.push_back(memory_peak(program));
  MemoryReport report;
  report.rank = worst_rank(plan, measured, planned);
  report.stage = plan.mesh.coordinate(report.rank, Axis::pp);
  const Program& program = plan.programs[report.stage];
  const MemoryPeak& peak = planned[report.stage];
  const auto form = memory_form(shape, report.stage);
  const bool known =
      report.rank < static_cast<int>(measured.size()) && measured[report.rank].has_value();
  const MemoryPeak* seen = known ? &*measured[report.rank] : nullptr;

  report.total = {.name = "total", .closed_form_bytes = 0, .plan_bytes = peak.total_bytes};
  for (int c = 0; c < kMemoryClasses; ++c) {
    const auto memory = static_cast<MemoryClass>(c);
    MemoryRow row{.name = std::string(name_of(memory)),
                  .closed_form_bytes = form[c],
                  .plan_bytes = peak.class_peak[c],
                  .composition_bytes = peak.at_total_peak[c]};
    if (seen) row.measured_bytes = seen->class_peak[c];
    if (form[c]) row.explanation = explain(plan, program, shape, memory, *form[c], row.plan_bytes);
    if (report.total.closed_form_bytes && form[c])
      *report.total.closed_form_bytes += *form[c];
    else
      report.total.closed_form_bytes.reset();
    report.classes.push_back(std::move(row));
  }
  report.total.composition_bytes = peak.total_bytes;
  if (seen) report.total.measured_bytes = seen->total_bytes;
  report.host_plan_bytes = peak.host_bytes;
  if (seen) report.host_measured_bytes = seen->host_bytes;
  if (report.total.closed_form_bytes && *report.total.closed_form_bytes != peak.total_bytes)
    report.total.explanation =
        "the sum of the classes' closed forms; in the plan they do not all peak at once";
  return report;
}

}  // namespace mb
