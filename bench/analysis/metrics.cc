#include "bench/analysis/metrics.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "bench/analysis/stats.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

double seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

using Of = std::function<double(const RankTimes&)>;

// Mean over the ranks that `wanted` takes; nullopt if it takes none.
std::optional<double> mean_over_ranks(
    const StepTimes& step, const Of& of,
    const std::function<bool(const RankTimes&)>& wanted = [](const RankTimes&) { return true; }) {
  double sum = 0, ranks = 0;
  for (const RankTimes& rank : step.ranks) {
    if (!wanted(rank)) continue;
    sum += rank.ranks * of(rank);
    ranks += rank.ranks;
  }
  if (ranks == 0) return std::nullopt;
  return sum / ranks;
}

// One sample a step, from those steps where `of` has one.
Metric per_step(std::span<const StepTimes> steps, std::string name, std::string unit,
                const std::function<std::optional<double>(const StepTimes&)>& of,
                const std::string& reason) {
  Metric metric{.name = std::move(name), .unit = std::move(unit)};
  for (const StepTimes& step : steps)
    if (const auto sample = of(step)) metric.samples.push_back(*sample);
  if (metric.samples.empty()) metric.reason = steps.empty() ? "no step was measured" : reason;
  return metric;
}

struct RankQuantity {
  const char* name;
  std::int64_t RankTimes::*ns;
};
constexpr RankQuantity kRankQuantities[] = {
    {"compute_s", &RankTimes::compute_ns},
    {"optimizer_s", &RankTimes::optimizer_ns},
    {"comm_s", &RankTimes::comm_ns},
    {"overlapped_comm_s", &RankTimes::overlapped_ns},
    {"exposed_comm_s", &RankTimes::exposed_comm_ns},
    {"memory_op_s", &RankTimes::memory_ns},
    {"overlapped_memory_op_s", &RankTimes::overlapped_memory_ns},
    {"exposed_memory_op_s", &RankTimes::exposed_memory_ns},
    {"idle_s", &RankTimes::idle_ns},
    {"busy_s", &RankTimes::busy_ns},
    {"busy_effective_s", &RankTimes::busy_effective_ns}};

void add_rank_times(std::span<const StepTimes> steps, std::vector<Metric>& out) {
  for (const RankQuantity& q : kRankQuantities)
    out.push_back(per_step(
        steps, q.name, "s",
        [&](const StepTimes& step) {
          return mean_over_ranks(step, [&](const RankTimes& r) { return seconds(r.*q.ns); });
        },
        ""));
  out.push_back(per_step(
      steps, "overlap_ratio", "1",
      [](const StepTimes& step) {
        const auto comm = mean_over_ranks(step, [](auto& r) { return seconds(r.comm_ns); });
        const auto hidden = mean_over_ranks(step, [](auto& r) { return seconds(r.overlapped_ns); });
        return comm > 0.0 ? std::optional(*hidden / *comm) : std::nullopt;
      },
      "no communication"));
  out.push_back(per_step(
      steps, "exposed_fraction", "1",
      [](const StepTimes& step) -> std::optional<double> {
        if (step.window_ns() == 0) return std::nullopt;
        return *mean_over_ranks(step, [](auto& r) { return seconds(r.exposed_comm_ns); }) /
               seconds(step.window_ns());
      },
      "the step took no time"));
}

void add_axes(std::span<const StepTimes> steps, std::vector<Metric>& out) {
  if (steps.empty()) return;
  using AxisOf = std::int64_t (*)(const AxisTimes&);
  const std::pair<const char*, AxisOf> quantities[] = {
      {"comm_", [](const AxisTimes& a) { return a.comm_ns; }},
      {"overlapped_comm_", [](const AxisTimes& a) { return a.overlapped_ns; }},
      {"overlapped_transfer_", [](const AxisTimes& a) { return a.overlapped_transfer_ns; }},
      {"exposed_comm_", [](const AxisTimes& a) { return a.exposed_ns(); }},
      {"exposed_transfer_", [](const AxisTimes& a) { return a.exposed_transfer_ns; }},
      {"exposed_wait_", [](const AxisTimes& a) { return a.exposed_wait_ns; }}};
  for (std::size_t axis = 0; axis < steps[0].axes.size(); ++axis) {
    std::string name = steps[0].axes[axis];
    std::replace(name.begin(), name.end(), '.', '_');
    for (const auto& [prefix, of] : quantities)
      out.push_back(per_step(
          steps, cat(prefix, name, "_s"), "s",
          [&](const StepTimes& step) {
            return mean_over_ranks(step,
                                   [&](const RankTimes& r) { return seconds(of(r.axes[axis])); });
          },
          ""));
  }
}

std::optional<double> ratio(std::int64_t a, std::int64_t b) {
  if (b <= 0) return std::nullopt;
  return static_cast<double>(a) / static_cast<double>(b);
}

// Means over stages and pipelines: every rank is one stage of one pipeline. One stage alone has
// none.
void add_bubble(std::span<const StepTimes> steps, std::vector<Metric>& out) {
  const bool pipeline = std::any_of(steps.begin(), steps.end(), [](const StepTimes& step) {
    return std::any_of(step.ranks.begin(), step.ranks.end(),
                       [](const RankTimes& r) { return r.stage > 0; });
  });
  const auto add = [&](const char* name, const char* unit,
                       std::optional<double> (*of)(const Bubble&)) {
    if (!pipeline) {
      out.push_back(absent(name, unit, "one stage is no pipeline"));
      return;
    }
    out.push_back(per_step(
        steps, name, unit,
        [of](const StepTimes& step) {
          return mean_over_ranks(
              step, [of](const RankTimes& r) { return *of(*r.bubble); },
              [of](const RankTimes& r) { return r.bubble && of(*r.bubble).has_value(); });
        },
        "no pipeline window: a stage has no forward or no backward"));
  };
  add("bubble_fraction", "1",
      [](const Bubble& b) { return ratio(b.bubble_ns(), b.window.end_ns - b.window.start_ns); });
  add("bubble_over_ideal", "1", [](const Bubble& b) { return ratio(b.bubble_ns(), b.compute_ns); });
  add("warm_up_bubble_s", "s",
      [](const Bubble& b) { return std::optional(seconds(b.warm_up.bubble_ns())); });
  add("steady_bubble_s", "s",
      [](const Bubble& b) { return std::optional(seconds(b.steady.bubble_ns())); });
  add("cool_down_bubble_s", "s",
      [](const Bubble& b) { return std::optional(seconds(b.cool_down.bubble_ns())); });
}

// Why an MFU cannot be what it seems; empty if it can.
std::string mfu_objection(double mfu, double hfu, double compute_share) {
  if (mfu > 1)
    return cat("refused: MFU ", mfu,
               " is above 1, so the peak is not this device's or the FLOPs "
               "are not this model's");
  if (mfu > hfu) return cat("refused: MFU ", mfu, " is above HFU ", hfu);
  if (compute_share < mfu)
    return cat("refused: MFU ", mfu, " is above the share of time in compute, ", compute_share);
  return "";
}

void add_utilization(std::span<const StepTimes> steps, const StepWork& work,
                     std::vector<Metric>& out) {
  Metric mfu{.name = "mfu", .unit = "1"}, hfu{.name = "hfu", .unit = "1"};
  if (!work.peak_flops_per_s || *work.peak_flops_per_s <= 0) mfu.reason = work.no_peak_reason;
  if (work.model_flops <= 0) mfu.reason = "the model's FLOPs are not known";
  if (steps.empty()) mfu.reason = "no step was measured";
  for (const StepTimes& step : steps) {
    if (!mfu.reason.empty()) break;
    const double time = seconds(step.window_ns());
    if (time <= 0) {
      mfu.reason = "the step took no time";
      break;
    }
    const double capacity = time * work.devices * *work.peak_flops_per_s;
    // Ranks that share a device add up on it.
    const double share =
        *mean_over_ranks(step, [](const RankTimes& r) { return seconds(r.compute_ns); }) / time *
        step.world() / work.devices;
    mfu.samples.push_back(work.model_flops / capacity);
    hfu.samples.push_back((work.model_flops + work.recomputed_flops) / capacity);
    mfu.reason = mfu_objection(mfu.samples.back(), hfu.samples.back(), share);
  }
  if (!mfu.reason.empty()) mfu.samples.clear(), hfu.samples.clear(), hfu.reason = mfu.reason;
  out.push_back(std::move(mfu));
  out.push_back(std::move(hfu));
}

}  // namespace

Metric value(std::string name, std::string unit, double value) {
  return {std::move(name), std::move(unit), {value}, ""};
}

Metric absent(std::string name, std::string unit, std::string reason) {
  return {std::move(name), std::move(unit), {}, std::move(reason)};
}

const Metric* find(std::span<const Metric> metrics, std::string_view name) {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const Metric& m) { return m.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

namespace {
double flops_of(const Plan& plan, bool recomputed_only) {
  std::vector<double> of_op;
  for (const Op& op : plan.ops) of_op.push_back(flops(op));
  double total = 0;
  for (const Program& program : plan.programs)
    for (const Instruction& i : program.instructions)
      if (const auto* compute = std::get_if<Compute>(&i.action);
          compute && (!recomputed_only || i.label.pass == Pass::recompute))
        total += of_op[compute->op];
  return total * plan.mesh.world() / static_cast<double>(plan.programs.size());
}
}  // namespace

double recomputed_flops(const Plan& plan) { return flops_of(plan, true); }
double planned_flops(const Plan& plan) { return flops_of(plan, false); }

std::vector<Metric> step_metrics(std::span<const StepTimes> steps, const StepWork& work) {
  std::vector<Metric> out;
  const auto rate = [&](const char* name, const char* unit, double amount) {
    out.push_back(per_step(
        steps, name, unit,
        [amount](const StepTimes& step) {
          const double time = seconds(step.window_ns());
          return time > 0 ? std::optional(amount / time) : std::nullopt;
        },
        "the step took no time"));
  };
  out.push_back(per_step(
      steps, "step_s", "s",
      [](const StepTimes& step) { return std::optional(seconds(step.window_ns())); }, ""));
  out.push_back(value("tokens", "token", work.tokens));
  rate("tokens_per_s", "token/s", work.tokens);
  out.push_back(value("model_flops", "FLOP", work.model_flops));
  out.push_back(value("recomputed_flops", "FLOP", work.recomputed_flops));
  out.push_back(value("hardware_flops", "FLOP", work.model_flops + work.recomputed_flops));
  rate("model_flops_per_s", "FLOP/s", work.model_flops);
  add_utilization(steps, work, out);
  add_bubble(steps, out);
  add_rank_times(steps, out);
  add_axes(steps, out);
  return out;
}

std::vector<RankSpread> rank_spreads(std::span<const StepTimes> steps) {
  std::vector<RankSpread> out;
  if (steps.empty()) return out;
  for (const RankQuantity& q : kRankQuantities) {
    RankSpread spread{.name = q.name, .unit = "s"};
    std::vector<double> medians;  // by lane, once for every rank of it
    for (std::size_t lane = 0; lane < steps[0].ranks.size(); ++lane) {
      std::vector<double> samples;
      for (const StepTimes& step : steps) samples.push_back(seconds(step.ranks[lane].*q.ns));
      const double middle = median(samples);
      const int rank = steps[0].ranks[lane].rank;
      if (medians.empty() || middle < spread.min) spread.min = middle, spread.min_rank = rank;
      if (medians.empty() || middle > spread.max) spread.max = middle, spread.max_rank = rank;
      medians.insert(medians.end(), steps[0].ranks[lane].ranks, middle);
    }
    spread.median = median(medians);
    out.push_back(std::move(spread));
  }
  return out;
}

}  // namespace mb
