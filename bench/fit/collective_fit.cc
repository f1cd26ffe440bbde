#include "bench/fit/collective_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "parallel/cost/collective_cost.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using Times = std::vector<CollectiveTime>;

std::size_t sizes_in(const Times& times) {
  std::set<double> sizes;
  for (const CollectiveTime& time : times) sizes.insert(time.bytes);
  return sizes.size();
}

std::string group_text(const GroupSpread& spread) {
  return cat(spread.ranks, " ranks on ", spread.nodes, spread.nodes == 1 ? " node" : " nodes");
}

void fit_curves(std::span<const CollectiveTime> times, CollectivesFit& fit) {
  std::map<std::tuple<CollectiveKind, int, int>, Times> groups;
  for (const CollectiveTime& time : times) {
    if (time.kind == CollectiveKind::all_to_all_v || time.kind == CollectiveKind::shift) continue;
    if (time.spread.nodes == 1 || time.spread.groups_on_a_node == 1)
      groups[{time.kind, time.spread.nodes, time.spread.ranks}].push_back(time);
  }
  for (const auto& [key, rows] : groups) {
    const GroupSpread& spread = rows[0].spread;
    if (const std::size_t sizes = sizes_in(rows); sizes < kSizesOfACurve) {
      fit.refused.push_back(cat("a curve of ", name_of(rows[0].kind), " over ", group_text(spread),
                                ": ", sizes, " sizes; it takes ", kSizesOfACurve));
      continue;
    }
    std::vector<SizeTime> points;
    for (const CollectiveTime& row : rows) points.push_back({row.bytes, row.seconds});
    CurveFit curve = fit_curve(std::move(points));
    fit.curves.push_back({{rows[0].kind, spread.ranks, std::move(curve.segments), spread.nodes},
                          static_cast<int>(rows.size()),
                          curve.error,
                          curve.held_out,
                          curve.held_out_worst,
                          sources_of(rows)});
  }
}

// Ten folds, or one a sample where there are fewer.
double held_out(const std::vector<LinkSample>& samples) {
  const std::size_t folds = std::min<std::size_t>(10, samples.size());
  double sum = 0;
  std::size_t predicted = 0;
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<LinkSample> others;
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (i % folds != fold) others.push_back(samples[i]);
    const LinkFit fit = fit_link(others);
    for (std::size_t i = fold; i < samples.size() && fit.latency_s; i += folds, ++predicted) {
      const LinkSample& s = samples[i];
      const double seconds = s.steps * *fit.latency_s + s.bytes / *fit.bytes_per_s;
      sum += std::abs(seconds / s.seconds - 1);
    }
  }
  return predicted > 0 ? sum / static_cast<double>(predicted) : 0;
}

// Messages go by the link alone, and so does what has no curve: it is fitted to messages where
// there are enough of them, else to all.
Times link_rows(std::span<const CollectiveTime> times) {
  Times all, messages;
  for (const CollectiveTime& time : times) {
    if (time.spread.nodes > 1) continue;
    all.push_back(time);
    if (time.kind == CollectiveKind::shift) messages.push_back(time);
  }
  return sizes_in(messages) < kSizesOfACurve ? all : messages;
}

void fit_links(std::span<const CollectiveTime> times, CollectivesFit& fit) {
  const Times rows = link_rows(times);
  std::vector<LinkSample> samples;
  for (const CollectiveTime& time : rows) {
    const auto cost = [&](const Link& link) {
      return collective_seconds(time.kind, static_cast<std::int64_t>(time.bytes), time.spread.ranks,
                                link);
    };
    const Link bytes_alone{.latency_us = 0, .gb_per_s = 1}, both{.latency_us = 1, .gb_per_s = 1};
    samples.push_back({.bytes = 1e9 * cost(bytes_alone),
                       .seconds = time.seconds,
                       .steps = 1e6 * (cost(both) - cost(bytes_alone))});
  }
  fit.link = fit_link(samples);
  fit.link_source = sources_of(rows);
  fit.link_held_out = held_out(samples);
  if (!fit.link.latency_s)
    fit.refused.push_back(cat("link_latency_us, link_gb_per_s: ",
                              samples.empty() ? "no collective within a node" : fit.link.reason));
}

void fit_nics(std::span<const CollectiveTime> times, const Machine& machine, CollectivesFit& fit) {
  Times rows;
  std::vector<double> measured;
  for (const CollectiveTime& time : times) {
    if (time.spread.nodes < 2) continue;
    rows.push_back(time);
    measured.push_back(time.seconds);
  }
  if (measured.size() < rows_wanted(2) || sizes_in(rows) < 2) {
    fit.refused.push_back(cat("nic_latency_us, nic_gb_per_s: ", measured.size(), " rows of ",
                              sizes_in(rows), " sizes between nodes; they take ", rows_wanted(2),
                              " of 2 or more"));
    return;
  }
  Machine tried = machine;
  tried.curves = "none";
  fit.nic = fit_constants({{"nic_latency_us", std::max(1.0, machine.inter.latency_us), 1e-3, 1e6},
                           {"nic_gb_per_s", machine.inter.gb_per_s, 1e-4, 1e5}},
                          measured, [&](std::span<const double> values, std::size_t row) {
                            tried.inter = {values[0], values[1]};
                            return group_seconds(rows[row].kind,
                                                 static_cast<std::int64_t>(rows[row].bytes),
                                                 rows[row].spread, tried);
                          });
  fit.nic_rows = static_cast<int>(rows.size());
  fit.nic_source = sources_of(rows);
}

}  // namespace

CollectivesFit fit_collectives(std::span<const CollectiveTime> times, Machine& machine) {
  CollectivesFit fit;
  fit_curves(times, fit);
  fit_links(times, fit);
  if (fit.link.latency_s) {
    machine.intra = {1e6 * *fit.link.latency_s, 1e-9 * *fit.link.bytes_per_s};
    machine.measured.sources["link_latency_us, link_gb_per_s"] =
        cat(fit.link.samples, " rows of ", fit.link_source);
  }
  fit_nics(times, machine, fit);
  if (fit.nic) {
    machine.inter = {fit.nic->values[0], fit.nic->values[1]};
    machine.measured.sources["nic_latency_us, nic_gb_per_s"] =
        cat(fit.nic_rows, " rows of ", fit.nic_source);
  }
  if (fit.curves.empty()) {
    // Curves of other links would hide those that were fitted.
    if (fit.link.latency_s) machine.curves = "none";
    return fit;
  }
  std::set<CollectiveKind> measured;
  std::vector<Curve> curves;
  for (const FittedCurve& fitted : fit.curves) {
    curves.push_back(fitted.curve);
    measured.insert(fitted.curve.kind);
    machine.measured.sources[cat("curve of ", name_of(fitted.curve.kind), " over ",
                                 fitted.curve.ranks, " ranks on ", fitted.curve.nodes, " nodes")] =
        cat(fitted.rows, " rows of ", fitted.source);
  }
  if (machine.curves != "none" && machine.curves != "measured") {
    for (const Curve& curve : find_curves(machine.curves).curves) {
      if (measured.contains(curve.kind)) continue;
      curves.push_back(curve);
      machine.measured.sources["other curves"] = cat("the set ", machine.curves);
    }
  }
  std::stable_sort(curves.begin(), curves.end(),
                   [](const Curve& a, const Curve& b) { return a.ranks < b.ranks; });
  machine.measured.curves = std::move(curves);
  machine.curves = "measured";
  return fit;
}

}  // namespace mb
