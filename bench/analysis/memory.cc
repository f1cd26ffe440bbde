#include "bench/analysis/memory.h"

#include <algorithm>
#include <map>

#include "parallel/plan/text.h"
#include "parallel/strategy/layout.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// The instruction at which `memory` holds most on the device.
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

// "gradients" of "gradients 3": buckets are numbered, and one name stands for all.
std::string family_of(const std::string& name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  const bool numbered = end != std::string::npos && end + 1 < name.size() && name[end] == ' ';
  return numbered ? name.substr(0, end) : name;
}

// On the device at `at`, largest first: of one class, or of all but what is always there.
std::vector<LiveTensors> live_at(const Plan& plan, const Program& program, InstructionId at,
                                 std::optional<MemoryClass> memory) {
  std::map<std::string, LiveTensors> families;
  for (const Tensor& t : program.tensors) {
    if (t.base != kNone || t.host || (memory && t.memory != *memory)) continue;
    const bool passing = t.first != kNone && t.first <= at && at <= t.last;
    if (!passing && !(t.persistent && memory)) continue;
    const std::string name = family_of(plan.names[t.name]);
    LiveTensors& family = families.try_emplace(name, LiveTensors{name}).first->second;
    ++family.count, family.bytes += t.bytes;
  }
  std::vector<LiveTensors> rows;
  for (auto& [name, family] : families) rows.push_back(std::move(family));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return rows;
}

// "at B0 it holds 3 x hidden (1.5 MiB), ..."
std::string live_at_peak(const Plan& plan, const Program& program, MemoryClass memory) {
  if (program.instructions.empty()) return "";
  const InstructionId at = class_peak_at(program, memory);
  const std::vector<LiveTensors> rows = live_at(plan, program, at, memory);
  const Label& label = program.instructions[at].label;
  std::string text = cat("at ", letter_of(label.pass));
  if (label.micro_batch >= 0) text += cat(label.micro_batch);
  text += " it holds ";
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i)
    text += cat(i ? ", " : "", rows[i].count, " x ", rows[i].name, " (",
                format_bytes(static_cast<double>(rows[i].bytes)), ")");
  if (rows.size() > kShown) text += cat(" and ", rows.size() - kShown, " more names");
  return text;
}

std::string explain(const Plan& plan, const Program& program, const StepShape& shape,
                    MemoryClass memory, const MemoryTerm& term, std::int64_t planned) {
  if (term.bytes == planned) return "";
  if (!term.bytes) return cat(term.source, "; ", live_at_peak(plan, program, memory));
  const std::int64_t difference = planned - *term.bytes;
  std::string text = cat("plan ", difference > 0 ? "+" : "-",
                         format_bytes(static_cast<double>(std::abs(difference))), ": ");
  const std::int64_t message =
      hidden_elements(shape.model, block_shape(shape.mesh, shape.options)) *
      size_of(shape.options.dtype);
  if (memory == MemoryClass::activation && difference > 0 && difference % message == 0)
    text +=
        cat(difference / message, " x s b h of ",
            "inputs received ahead and outputs not yet sent, which the closed form leaves out; ");
  if (term.kind == FormKind::at_most && difference < 0) text += "the closed form is a bound; ";
  return text + live_at_peak(plan, program, memory);
}

std::int64_t total_of(const Plan& plan, const MeasuredMemory& measured,
                      const std::vector<std::int64_t>& planned, int rank) {
  const bool known = rank < static_cast<int>(measured.size()) && measured[rank];
  return known ? measured[rank]->total_bytes : planned[plan.mesh.coordinate(rank, Axis::pp)];
}

}  // namespace

MeasuredMemory measured_memory(const Executor& executor, int world) {
  MeasuredMemory measured;
  for (int rank = 0; rank < world; ++rank) measured.push_back(executor.memory(rank));
  return measured;
}

MemoryReport memory_of_rank(const Plan& plan, const StepShape& shape,
                            const MeasuredMemory& measured, int rank) {
  MemoryReport report{.rank = rank, .stage = plan.mesh.coordinate(rank, Axis::pp)};
  const Program& program = plan.programs[report.stage];
  const MemoryPeak peak = memory_peak(program);
  const MemoryForm form = memory_form(shape, report.stage);
  const bool known = rank < static_cast<int>(measured.size()) && measured[rank].has_value();
  const MemoryPeak* seen = known ? &*measured[rank] : nullptr;

  report.total = {.name = "total",
                  .form = FormKind::none,
                  .closed_form_bytes = 0,
                  .plan_bytes = peak.total_bytes,
                  .composition_bytes = peak.total_bytes,
                  .explanation =
                      "the sum of the closed forms that there are; in the plan the "
                      "classes do not all peak at once"};
  for (int c = 0; c < kMemoryClasses; ++c) {
    const auto memory = static_cast<MemoryClass>(c);
    const MemoryTerm& term = form.classes[c];
    MemoryRow row{.name = std::string(name_of(memory)),
                  .form = term.kind,
                  .closed_form_bytes = term.bytes,
                  .plan_bytes = peak.class_peak[c],
                  .composition_bytes = peak.at_total_peak[c],
                  .explanation = explain(plan, program, shape, memory, term, peak.class_peak[c])};
    if (seen) row.measured_bytes = seen->class_peak[c];
    *report.total.closed_form_bytes += term.bytes.value_or(0);
    report.classes.push_back(std::move(row));
  }
  report.host = {.name = "host",
                 .form = form.host.kind,
                 .closed_form_bytes = form.host.bytes,
                 .plan_bytes = peak.host_bytes};
  if (report.total.closed_form_bytes == peak.total_bytes) report.total.explanation.clear();
  if (seen) {
    report.total.measured_bytes = seen->total_bytes;
    report.host.measured_bytes = seen->host_bytes;
  }
  report.reserved_bytes = program.arena_bytes;
  if (peak.at != kNone) {
    report.peak = label_text(plan, program.instructions[peak.at].label);
    report.live = live_at(plan, program, peak.at, std::nullopt);
  }
  return report;
}

std::vector<MemoryReport> memory_reports(const Plan& plan, const StepShape& shape,
                                         const MeasuredMemory& measured) {
  std::vector<std::int64_t> planned;
  for (const Program& program : plan.programs) planned.push_back(memory_peak(program).total_bytes);
  std::vector<int> fullest(plan.programs.size(), kNone);
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    int& most = fullest[plan.mesh.coordinate(rank, Axis::pp)];
    const auto total = [&](int of) { return total_of(plan, measured, planned, of); };
    if (most == kNone || total(rank) > total(most)) most = rank;
  }
  std::vector<MemoryReport> reports;
  for (int rank : fullest) reports.push_back(memory_of_rank(plan, shape, measured, rank));
  return reports;
}

const MemoryReport& fullest(const std::vector<MemoryReport>& reports) {
  const auto total = [](const MemoryReport& report) {
    return report.total.measured_bytes.value_or(report.total.plan_bytes);
  };
  return *std::max_element(reports.begin(), reports.end(),
                           [&](const auto& a, const auto& b) { return total(a) < total(b); });
}

MemoryReport memory_report(const Plan& plan, const StepShape& shape,
                           const MeasuredMemory& measured) {
  return fullest(memory_reports(plan, shape, measured));
}

}  // namespace mb
