#include "bench/cli/place_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "bench/analysis/metrics.h"
#include "bench/analysis/stats.h"
#include "bench/cli/case_params.h"
#include "bench/report/row.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

std::string seconds(double s) { return format_duration(1e9 * s); }
std::string times(double ratio) { return fmt::format("{:.2f}", ratio); }

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += cat(text.empty() ? "" : between, part);
  return text;
}

// Sums over the whole world cross nodes in every order, and the ends of the pipeline with it.
bool is_told(const AxisPlacement& axis) { return axis.axis != "world" && axis.axis != "embedding"; }

std::vector<std::string> axes_that(const PlacedOrder& placed, bool cross) {
  std::vector<std::string> names;
  for (const AxisPlacement& axis : placed.axes) {
    if (is_told(axis) && (axis.crossing > 0) == cross) names.push_back(axis.axis);
  }
  return names;
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string head(const Case& c, const Machine& machine) {
  std::string text = fmt::format(
      "{}\n\n{} ranks on {} node{}. Virtual time on {}: {} GB/s and {} us within a node, {} GB/s "
      "and {} us between nodes, of each rank.\n",
      to_text(c), c.mesh.world(), c.mesh.node_count(), c.mesh.node_count() == 1 ? "" : "s",
      machine.name, machine.intra.gb_per_s, machine.intra.latency_us, machine.inter.gb_per_s,
      machine.inter.latency_us);
  if (c.link && c.link->inter_of_node)
    text += "It leaves out that the ranks of a node share their link to the others.\n";
  return text;
}

std::string orders_table(const std::vector<PlacedOrder>& placed) {
  const bool measured = !placed.front().measured_s.empty();
  std::vector<Column> columns = {{"order, fastest axis first", Align::left},
                                 {"crosses nodes", Align::left},
                                 {"between nodes"},
                                 {"within nodes"},
                                 {"step, virtual time"},
                                 {"times the best"}};
  if (measured) columns.insert(columns.end(), {{"step, measured"}, {"times the best"}});
  Table table(columns);
  double fastest = 0;
  for (const PlacedOrder& p : placed) {
    if (measured)
      fastest = fastest > 0 ? std::min(fastest, median(p.measured_s)) : median(p.measured_s);
  }
  for (const PlacedOrder& p : placed) {
    std::vector<std::string> cells = {
        joined(p.orders, " = "),       or_none(joined(axes_that(p, true), ", ")),
        format_bytes(p.inter_bytes()), format_bytes(p.intra_bytes()),
        seconds(p.simulated_s),        times(p.simulated_s / placed.front().simulated_s)};
    if (measured) {
      cells.push_back(seconds(median(p.measured_s)));
      cells.push_back(times(median(p.measured_s) / fastest));
    }
    table.add(cells);
  }
  return "\nBytes are sent in a step by all ranks, over rings.\n" + table.to_text();
}

std::string axes_table(const std::vector<PlacedOrder>& placed) {
  Table table({{"axis", Align::left},
               {"ranks"},
               {"order", Align::left},
               {"links", Align::left},
               {"groups across"},
               {"between nodes"},
               {"within nodes"},
               {"time of a rank"}});
  for (const AxisPlacement& axis : placed.front().axes) {
    if (!is_told(axis)) continue;
    for (const PlacedOrder& p : placed) {
      const AxisPlacement& here = *p.axis(axis.axis);
      table.add({axis.axis, cat(axis.ranks), p.orders.front(), std::string(name_of(here.link)),
                 cat(here.crossing, " of ", here.groups), format_bytes(here.inter_bytes),
                 format_bytes(here.intra_bytes), seconds(here.seconds)});
    }
  }
  return "\nBy axis; pairs of ranks instead of groups for messages of the pipeline. The time is "
         "that "
         "of a rank's operations one after the other, hidden or not.\n" +
         table.to_text();
}

// The axis whose communication takes the most longer in `worse`.
const AxisPlacement* culprit(const PlacedOrder& best, const PlacedOrder& worse) {
  const AxisPlacement* found = nullptr;
  double most = 0;
  for (const AxisPlacement& axis : worse.axes) {
    const double longer = axis.seconds - best.axis(axis.axis)->seconds;
    if (is_told(axis) && longer > most) most = longer, found = &axis;
  }
  return found;
}

std::string verdict(const std::vector<PlacedOrder>& placed) {
  const PlacedOrder &best = placed.front(), &worst = placed.back();
  const std::string inside = joined(axes_that(best, false), " and "),
                    outside = joined(axes_that(best, true), " and ");
  if (placed.size() == 1)
    return fmt::format("\nNo order differs from another: {} cross{} nodes in all of them.\n",
                       outside.empty() ? "no axis" : outside,
                       axes_that(best, true).size() > 1 ? "" : "es");
  std::string text = fmt::format("\nBest: order={}. Within nodes: {}. Between nodes: {}.\n",
                                 best.orders.front(), or_none(inside), or_none(outside));
  text += fmt::format("Worst: order={}, {} times the step", worst.orders.front(),
                      times(worst.simulated_s / best.simulated_s));
  if (!best.measured_s.empty())
    text +=
        fmt::format(" (measured: {})", times(median(worst.measured_s) / median(best.measured_s)));
  if (const AxisPlacement* axis = culprit(best, worst)) {
    text += fmt::format(": {} takes {} there instead of {}, with {} between nodes instead of {}",
                        axis->axis, seconds(axis->seconds), seconds(best.axis(axis->axis)->seconds),
                        format_bytes(axis->inter_bytes),
                        format_bytes(best.axis(axis->axis)->inter_bytes));
  }
  return text + ".\n";
}

Json axis_json(const AxisPlacement& axis) {
  return {{"axis", axis.axis},
          {"ranks", axis.ranks},
          {"groups", axis.groups},
          {"crossing", axis.crossing},
          {"link", name_of(axis.link)},
          {"intra_bytes", axis.intra_bytes},
          {"inter_bytes", axis.inter_bytes},
          {"seconds", axis.seconds}};
}

}  // namespace

double PlacedOrder::intra_bytes() const {
  double sum = 0;
  for (const AxisPlacement& axis : axes) sum += axis.intra_bytes;
  return sum;
}

double PlacedOrder::inter_bytes() const {
  double sum = 0;
  for (const AxisPlacement& axis : axes) sum += axis.inter_bytes;
  return sum;
}

const AxisPlacement* PlacedOrder::axis(const std::string& name) const {
  const auto found = std::find_if(axes.begin(), axes.end(),
                                  [&](const AxisPlacement& a) { return a.axis == name; });
  return found == axes.end() ? nullptr : &*found;
}

std::string place_text(const Case& c, const Machine& machine,
                       const std::vector<PlacedOrder>& placed) {
  return head(c, machine) + orders_table(placed) + axes_table(placed) + verdict(placed);
}

std::vector<Json> place_rows(const Machine& machine, const std::vector<PlacedOrder>& placed) {
  std::vector<Json> rows;
  for (const PlacedOrder& p : placed) {
    RowHead head{
        .suite = "place", .case_line = to_text(p.c), .params = params_of(p.c), .seed = p.c.seed};
    head.extra_hard["simulated_machine"] = hash_text(to_json(machine));
    Json row = row_head(head);
    Metric step = absent("step_s", "s", "not run; --run measures it");
    if (!p.measured_s.empty()) step.samples = p.measured_s, step.reason.clear();
    row["metrics"]["step_s"] = to_json(step);
    row["metrics"]["simulated_step_s"] = to_json(value("simulated_step_s", "s", p.simulated_s));
    Json axes = Json::array();
    for (const AxisPlacement& axis : p.axes) axes.push_back(axis_json(axis));
    row["placement"] = {{"orders", p.orders},
                        {"nodes", p.c.mesh.node_count()},
                        {"crossing_axes", axes_that(p, true)},
                        {"intra_bytes", p.intra_bytes()},
                        {"inter_bytes", p.inter_bytes()},
                        {"times_the_best", p.simulated_s / placed.front().simulated_s},
                        {"axes", std::move(axes)}};
    row["machine"] = Json::parse(to_json(machine));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace mb
