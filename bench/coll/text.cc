#include "bench/coll/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// As nccl-tests calls them.
std::string_view nccl_name(DType type) {
  switch (type) {
    case DType::fp32:
      return "float";
    case DType::fp64:
      return "double";
    case DType::bf16:
      return "bfloat16";
    case DType::fp16:
      return "half";
    default:
      return name_of(type);
  }
}

std::string half_text(const CollConfig& config, const MeasuredPoint* measured, std::size_t group) {
  if (!measured) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  const GroupSummary& s = measured->summary.groups[group];
  const auto rate = [](const std::optional<double>& bytes_per_s) {
    return bytes_per_s ? fmt::format("{:6.2f}", 1e-9 * *bytes_per_s) : std::string("N/A");
  };
  const Findings& findings = measured->result.groups[group].findings;
  const std::string wrong = config.check && findings.checked > 0 ? cat(findings.wrong) : "N/A";
  return fmt::format(
      "  {:>7}  {:>6}  {:>6}  {:>5}",
      measured->summary.no_speed.empty() ? time_text(1e-3 * s.completion.p50) : "N/A",
      rate(s.algbw), rate(s.busbw), wrong);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += cat(text.empty() ? "" : " ", rank);
  return text;
}

void add_remark(std::string& text, const std::string& remark) {
  if (!remark.empty()) text += cat("# ", remark, '\n');
}

std::string wrong_text(const GroupResult& group) {
  const Findings& f = group.findings;
  if (f.wrong == 0) return "";
  return cat(f.wrong, " wrong of ", f.checked, " elements checked; the first on rank ",
             group.wrong_rank, ", operation ", f.operation, ", element ", f.index, ": got ",
             element_text(f.got, group.call.type), ", expected ",
             element_text(f.expected, group.call.type));
}

std::string flags_text(const CollConfig& config, const MeasuredPoint& m, const GroupSummary& s) {
  std::vector<std::string> flags;
  if (!m.result.warm) flags.push_back("still getting faster when warm-up ended");
  const auto& interval = s.completion.interval;
  if (!m.result.certain && s.completion.n > 1) {
    flags.push_back(
        interval ? fmt::format("the median is {} to {} us (95 %), wider than {:.3g} % after {} "
                               "operations",
                               time_text(1e-3 * interval->low), time_text(1e-3 * interval->high),
                               100 * config.interval, s.completion.n)
                 : fmt::format("{} operations say little", s.completion.n));
  }
  if (s.drifts) flags.push_back("drifts from its first third to its last");
  if (s.minor_faults > 0)
    flags.push_back(fmt::format("{:.2g} page faults an operation", s.minor_faults));
  constexpr double kBusy = 0.02;
  if (m.result.pinned && s.preemptions > kBusy)
    flags.push_back(
        fmt::format("other programs took a rank's core {:.2g} times an operation", s.preemptions));
  return join(flags, "; ");
}

std::string remarks(const CollConfig& config, const MeasuredPoint& m) {
  const std::string where = m.result.point.in_place                     ? "in place"
                            : can_be_in_place(m.result.point.operation) ? "out of place"
                                                                        : "";
  std::string text;
  for (std::size_t g = 0; g < m.summary.groups.size(); ++g) {
    const GroupSummary& s = m.summary.groups[g];
    const GroupResult& group = m.result.groups[g];
    std::vector<std::string> parts;
    const auto part = [&](const std::string& more) {
      if (!more.empty()) parts.push_back(more);
    };
    part(wrong_text(group));
    if (!m.summary.no_speed.empty()) {
      if (!parts.empty()) add_remark(text, cat(s.bytes, " B: ", parts.front()));
      continue;
    }
    part(to_text(s.verdict, group.ranks));
    part(flags_text(config, m, s));
    if (s.alone_ns)
      part(fmt::format("{:.2f} times as long as alone, {} us",
                       s.completion.p50 / share_of_time(group.call.operation) / *s.alone_ns,
                       time_text(1e-3 * *s.alone_ns * share_of_time(group.call.operation))));
    if (s.overlap)
      part(
          fmt::format("overlap {}: operation {} us, {} {} us, both {} us; slow-down of the "
                      "operation {:.2f}, of computation {:.2f}",
                      s.overlap->efficiency ? fmt::format("{:.0f} %", 100 * *s.overlap->efficiency)
                                            : "not defined, as one unit of computation is longer",
                      time_text(1e-3 * s.overlap->operation_ns), name_of(m.result.point.overlap),
                      time_text(1e-3 * s.overlap->compute_ns), time_text(1e-3 * s.overlap->both_ns),
                      s.overlap->operation_slow_down, s.overlap->compute_slow_down));
    if (parts.empty()) continue;
    std::string head = cat(s.bytes, " B");
    if (!where.empty()) head += cat(' ', where);
    if (m.summary.groups.size() > 1) head += cat(", group ", group.index);
    add_remark(text, cat(head, ": ", join(parts, "; ")));
  }
  return text;
}

std::size_t slowest_of(const PointSummary& summary) {
  std::size_t slowest = 0;
  for (std::size_t g = 1; g < summary.groups.size(); ++g) {
    if (summary.groups[g].completion.p50 > summary.groups[slowest].completion.p50) slowest = g;
  }
  return slowest;
}

// Where an axis has several groups: how they compare.
std::string spread(const MeasuredPoint& m) {
  if (m.summary.groups.size() < 2 || !m.summary.no_speed.empty()) return "";
  std::vector<double> medians;
  for (const GroupSummary& s : m.summary.groups) medians.push_back(s.completion.p50);
  const std::size_t slowest = slowest_of(m.summary);
  if (medians[slowest] == *std::min_element(medians.begin(), medians.end())) return "";
  return fmt::format(
      "# {} B{}: {} groups take {} to {} us, median {}; slowest group {} (ranks {})\n",
      m.summary.groups.front().bytes, m.result.point.in_place ? " in place" : "", medians.size(),
      time_text(1e-3 * *std::min_element(medians.begin(), medians.end())),
      time_text(1e-3 * medians[slowest]), time_text(1e-3 * median(medians)), slowest,
      rank_list(m.result.groups[slowest].ranks));
}

std::string group_lines(const CollConfig& config, const Point& point) {
  const auto groups = groups_of(config, point.group);
  if (groups.size() == 1) return fmt::format("# one group: ranks {}\n", rank_list(groups[0]));
  std::string text =
      fmt::format("# {} groups of {} ranks at once; rows of a size are in their order:\n",
                  groups.size(), groups[0].size());
  constexpr std::size_t kShown = 8;
  for (std::size_t g = 0; g < std::min(groups.size(), kShown); ++g)
    text += fmt::format("#   group {}: ranks {}\n", g, rank_list(groups[g]));
  if (groups.size() > kShown) text += fmt::format("#   and {} more\n", groups.size() - kShown);
  return text;
}

}  // namespace

std::string time_text(double us) {
  for (const int decimals : {2, 1, 0}) {
    const std::string text = fmt::format("{:.{}f}", us, decimals);
    const bool room = us < (decimals == 2 ? 100.0 : decimals == 1 ? 10000.0 : 1e7);
    if (room && text.size() <= 7) return text;
  }
  return fmt::format("{:.1e}", us);
}

std::string table_head(const CollConfig& config, const std::vector<Point>& points,
                       const Surroundings& around) {
  const Point& point = points.front();
  std::string text =
      fmt::format("# meshbench coll {} over {} of mesh {}, mode={}{}\n", name_of(point.operation),
                  name_of(point.group), config.mesh.to_text(), around.mode,
                  around.mode == "sim" ? cat(" machine=", around.machine->name) : "");
  text += group_lines(config, point);
  if (groups_of(config, point.group).front().size() < 2)
    text += "# one rank has nobody to talk to: busbw is not defined\n";
  if (point.beside)
    text += fmt::format("# beside it runs {} of {} over {}\n", name_of(point.beside->operation),
                        format_bytes(static_cast<double>(point.beside->bytes)),
                        name_of(point.beside->group));
  if (config.injection)
    text += fmt::format("# rank {} is kept back by {} before every operation (inject=)\n",
                        config.injection->rank,
                        format_duration(static_cast<double>(config.injection->delay_ns)));
  if (around.cores.is_crowded())
    text += fmt::format("# {} ranks share {} {}: times include waiting for a core\n",
                        around.cores.ranks, around.cores.cores,
                        around.cores.cores == 1 ? "core" : "cores");
  if (!around.no_speed.empty())
    text += fmt::format("# no time or rate is shown: {}\n", around.no_speed);
  text +=
      "# time: median from the last start to the last end; sizes binary, 1 GB/s = 1e9 B/s, one "
      "direction\n";
  text += fmt::format(
      "#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place            "
      "           in-place          \n",
      "", "", "", "", "");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop",
                      "root");
  for (int half = 0; half < 2; ++half)
    text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", "time", "algbw", "busbw", "#wrong");
  text += fmt::format("\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
  for (int half = 0; half < 2; ++half)
    text += fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "(us)", "(GB/s)", "(GB/s)", "");
  return text + '\n';
}

std::string table_rows(const CollConfig& config, const MeasuredPoint* out_of_place,
                       const MeasuredPoint* in_place) {
  const MeasuredPoint& any = out_of_place ? *out_of_place : *in_place;
  std::string text;
  if (config.algorithms.size() > 1 || config.tuning)
    add_remark(text, cat(any.summary.groups.front().bytes, " B: algorithm ",
                         name_of(any.result.point.algorithm)));
  for (const MeasuredPoint* m : {out_of_place, in_place}) {
    if (m) text += spread(*m) + remarks(config, *m);
  }
  for (std::size_t g = 0; g < any.summary.groups.size(); ++g) {
    const CollCall& call = any.result.groups[g].call;
    const bool sums = reduces(call.operation);
    text += fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", any.summary.groups[g].bytes,
                        call.count, nccl_name(call.type), sums ? name_of(call.redop) : "none",
                        has_root(call.operation) ? call.root : -1);
    text += half_text(config, out_of_place, g) + half_text(config, in_place, g) + '\n';
  }
  return text;
}

std::int64_t wrong_elements(const std::vector<MeasuredPoint>& all) {
  std::int64_t wrong = 0;
  for (const MeasuredPoint& m : all) {
    for (const GroupResult& group : m.result.groups) wrong += group.findings.wrong;
  }
  return wrong;
}

std::string table_foot(const std::vector<MeasuredPoint>& all) {
  double sum = 0;
  int rates = 0;
  for (const MeasuredPoint& m : all) {
    for (const GroupSummary& s : m.summary.groups) {
      if (!s.busbw) continue;
      sum += 1e-9 * *s.busbw;
      ++rates;
    }
  }
  const std::int64_t wrong = wrong_elements(all);
  const bool checked = std::any_of(all.begin(), all.end(), [](const MeasuredPoint& m) {
    return std::any_of(m.result.groups.begin(), m.result.groups.end(),
                       [](const GroupResult& group) { return group.findings.checked > 0; });
  });
  return fmt::format(
      "{}# Out of bounds values : {} {}\n# Avg bus bandwidth    : {} \n#\n",
      checked ? "" : "# no element was checked (check=off, no data, or virtual time)\n", wrong,
      wrong == 0 ? "OK" : "FAILED", rates > 0 ? fmt::format("{:g}", sum / rates) : "N/A");
}

std::string explanation(const CollConfig& config, const Surroundings& around) {
  std::string text =
      "# algbw = S / time, busbw = factor * algbw, S as in the size column, n = ranks of a group\n";
  for (const Operation operation : config.operations)
    text += fmt::format("# {}: factor {}\n", name_of(operation), reason_of(operation));
  for (const Group& group : config.axes) {
    const std::vector<std::vector<int>> groups = groups_of(config, group);
    const std::vector<int> nodes = config.mesh.nodes_of(groups.front());
    text += fmt::format("# {}: {} x {} ranks, links of the first group: {}; nodes in all: {}\n",
                        name_of(group), groups.size(), nodes.size(), name_of(link_class(nodes)),
                        config.mesh.node_count());
  }
  if (around.memory_bytes_per_s)
    text += fmt::format("# memory reads and writes {}: the ceiling of ranks that share it\n",
                        format_bandwidth(*around.memory_bytes_per_s));
  if (around.machine)
    text += fmt::format("# {}: {} GB/s and {} us within a node, {} GB/s and {} us between nodes\n",
                        around.machine->name, around.machine->intra.gb_per_s,
                        around.machine->intra.latency_us, around.machine->inter.gb_per_s,
                        around.machine->inter.latency_us);
  return text;
}

std::string second_table(const std::vector<MeasuredPoint>& all) {
  Table table({{"operation", Align::left},
               {"axis", Align::left},
               {"algorithm", Align::left},
               {"group"},
               {"size"},
               {"place", Align::left},
               {"n"},
               {"p50 us"},
               {"p99 us"},
               {"max us"},
               {"mean of ranks us"},
               {"submit us"},
               {"skew us"},
               {"wait us"},
               {"transfer us"},
               {"busbw GB/s"},
               {"ceiling GB/s"},
               {"reached %"},
               {"links", Align::left},
               {"sent B/rank intra"},
               {"inter"},
               {"faults/op"},
               {"switches/op"},
               {"verdict", Align::left}});
  for (const MeasuredPoint& m : all) {
    const std::size_t g = slowest_of(m.summary);
    const GroupSummary& s = m.summary.groups[g];
    double wait = 0, transfer = 0;
    for (const MemberTimes& member : s.members) {
      wait = std::max(wait, member.wait_ns);
      transfer = std::max(transfer, member.transfer_ns);
    }
    const auto number = [](const std::optional<double>& x, double scale, int decimals) {
      return x ? fmt::format("{:.{}f}", *x * scale, decimals) : std::string("-");
    };
    const auto& wire = s.expected.wire;
    table.add({std::string(name_of(m.result.point.operation)),
               name_of(m.result.point.group),
               std::string(name_of(m.result.point.algorithm)),
               cat(m.result.groups[g].index),
               cat(s.bytes),
               m.result.point.in_place ? "in" : "out",
               cat(s.completion.n),
               time_text(1e-3 * s.completion.p50),
               time_text(1e-3 * s.completion.p99),
               time_text(1e-3 * s.completion.max),
               time_text(1e-3 * s.mean_duration_ns),
               s.submit ? time_text(1e-3 * s.submit->p50) : "-",
               time_text(1e-3 * s.skew.p50),
               time_text(1e-3 * wait),
               time_text(1e-3 * transfer),
               number(s.busbw, 1e-9, 2),
               number(s.expected.busbw_ceiling, 1e-9, 2),
               number(s.expected.fraction, 100, 0),
               std::string(name_of(s.expected.link)),
               wire ? fmt::format("{:.0f}", wire->intra) : "-",
               wire ? fmt::format("{:.0f}", wire->inter) : "-",
               fmt::format("{:.2g}", s.minor_faults),
               fmt::format("{:.2g}", s.switches),
               std::string(name_of(s.verdict.fault))});
  }
  return table.to_text(style_of_environment());
}

std::string matrix_text(const std::vector<std::string>& axes,
                        const std::vector<std::vector<std::optional<double>>>& slow_down) {
  std::vector<Column> columns = {{"slow-down of", Align::left}};
  for (const std::string& axis : axes) columns.push_back({cat("beside ", axis)});
  Table table(columns);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::vector<std::string> cells = {axes[a]};
    for (const auto& value : slow_down[a])
      cells.push_back(value ? fmt::format("{:.2f}", *value) : "-");
    table.add(cells);
  }
  return table.to_text(style_of_environment());
}

}  // namespace mb
