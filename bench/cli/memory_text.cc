#include "bench/cli/memory_text.h"

#include <fmt/core.h>

#include <vector>

#include "bench/analysis/memory_form.h"
#include "bench/analysis/state_form.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }
std::string bytes(const std::optional<std::int64_t>& count) { return count ? bytes(*count) : "-"; }

// "= 1.5 MiB" where the plan has to agree, "~" and "<=" where it may differ.
std::string form_cell(FormKind kind, const std::optional<std::int64_t>& count) {
  constexpr std::string_view marks[] = {"= ", "~ ", "<= ", ""};
  return count ? cat(marks[static_cast<int>(kind)], bytes(*count)) : "-";
}

}  // namespace

std::string memory_text(const MemoryReport& memory) {
  const bool measured = memory.total.measured_bytes.has_value();
  std::vector<Column> columns = {{"memory class", Align::left}, {"closed form"}, {"plan"}};
  if (measured) columns.push_back({"measured"});
  columns.push_back({"at the peak"});
  Table table(columns);
  std::string notes;
  const auto add = [&](const MemoryRow& row, bool adds_up) {
    if (row.plan_bytes == 0 && row.closed_form_bytes.value_or(0) == 0) return;
    std::vector<std::string> cells = {row.name, form_cell(row.form, row.closed_form_bytes),
                                      bytes(row.plan_bytes)};
    if (measured) cells.push_back(bytes(row.measured_bytes));
    cells.push_back(adds_up ? bytes(row.composition_bytes) : "");
    table.add(cells);
    if (!row.explanation.empty()) notes += fmt::format("  {}: {}\n", row.name, row.explanation);
  };
  for (const MemoryRow& row : memory.classes) add(row, true);
  add(memory.total, true);
  add(memory.host, false);
  return "A class's own peaks do not add up; what is live at the total's peak does.\n" +
         table.to_text() + (notes.empty() ? "" : "Where closed form and plan differ:\n" + notes);
}

std::string memory_form_text(const StepShape& shape) {
  const int ranks = shape.stages();
  std::vector<MemoryForm> forms;
  for (int rank = 0; rank < ranks; ++rank) forms.push_back(memory_form(shape, rank));
  std::vector<Column> columns = {{"stage"}, {"parameters"}, {"chunks kept"}};
  std::vector<int> classes;
  for (int c = 0; c < kMemoryClasses; ++c) {
    bool any = false;
    for (const MemoryForm& form : forms) any = any || form.classes[c].bytes.value_or(0) > 0;
    if (!any) continue;
    classes.push_back(c);
    columns.push_back({std::string(name_of(static_cast<MemoryClass>(c)))});
  }
  columns.push_back({"sum"});
  columns.push_back({"host"});
  Table table(columns);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto chunks = chunks_in_flight(shape, rank);
    std::vector<std::string> cells = {
        cat(rank), format_count(static_cast<double>(local_parameters(shape, rank))),
        chunks ? cat(*chunks) : "-"};
    std::int64_t sum = 0;
    for (int c : classes) {
      const MemoryTerm& term = forms[rank].classes[c];
      cells.push_back(bytes(term.bytes));
      sum += term.bytes.value_or(0);
    }
    cells.push_back(bytes(sum));
    const std::int64_t host = *forms[rank].host.bytes;
    cells.push_back(host > 0 ? bytes(host) : "-");
    table.add(cells);
  }
  return table.to_text();
}

}  // namespace mb
