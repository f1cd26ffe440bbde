#include "bench/choose/explain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/analysis/breakdown.h"
#include "bench/analysis/step_times.h"
#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::string part_name(const BreakdownPart& part) {
  if (part.name.starts_with("exposed")) return "exposed " + part.axis;
  if (part.name == "idle_in_pipeline") return "bubble";
  return part.name;
}

// What grows by the same with every round of micro-batches.
struct Counted {
  std::map<std::string, double> parts;
  std::vector<AxisPlacement> axes;
};

Counted count(const Question& q, const Mesh& mesh, const StepOptions& options) {
  const Plan plan = plan_step(q.model, mesh, options);
  const auto cost = make_roofline_cost(plan, q.machine, q.stack);
  const std::vector<StepTimes> times = {step_times(plan, simulate(plan, *cost))};
  const Breakdown whole = breakdown(times);
  Counted counted{.parts = {}, .axes = place_axes(plan, *cost)};
  for (const BreakdownPart& part : whole.parts)
    counted.parts[part_name(part)] += 1e-9 * static_cast<double>(part.total_ns) / whole.ranks;
  return counted;
}

double grown(double fewer, double more, double rounds) { return more + rounds * (more - fewer); }

double normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

Anatomy anatomy_of(const Question& q, const Mesh& mesh, const StepOptions& options) {
  const Rounds rounds = rounds_of(mesh, options);
  StepOptions some = options;
  some.micro_batches = rounds.walked;
  Counted counted = count(q, mesh, some);
  if (rounds.walked < options.micro_batches) {
    some.micro_batches -= rounds.round;
    const Counted fewer = count(q, mesh, some);
    const double more = 1.0 * (options.micro_batches - rounds.walked) / rounds.round;
    for (auto& [name, seconds] : counted.parts) {
      const auto before = fewer.parts.find(name);
      seconds = grown(before == fewer.parts.end() ? 0 : before->second, seconds, more);
    }
    for (AxisPlacement& axis : counted.axes) {
      for (const AxisPlacement& before : fewer.axes) {
        if (before.axis != axis.axis) continue;
        axis.intra_bytes = grown(before.intra_bytes, axis.intra_bytes, more);
        axis.inter_bytes = grown(before.inter_bytes, axis.inter_bytes, more);
        axis.seconds = grown(before.seconds, axis.seconds, more);
      }
    }
  }
  Anatomy anatomy{.parts = {}, .axes = counted.axes};
  for (const auto& [name, seconds] : counted.parts) {
    if (seconds > 0) anatomy.parts.push_back({name, seconds});
  }
  std::stable_sort(anatomy.parts.begin(), anatomy.parts.end(),
                   [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  if (q.stack.host_us > 0) {
    Stack at_once = q.stack;
    at_once.host_us = 0;
    anatomy.host_s = predict(q.model, mesh, options, q.machine, q.stack).step_s -
                     predict(q.model, mesh, options, q.machine, at_once).step_s;
  }
  return anatomy;
}

double probability_faster(double a_s, double b_s, double log_sigma, bool same_mesh) {
  const double shared = same_mesh ? kSharedOnOneMesh : kSharedElsewhere;
  return normal(std::log(b_s / a_s) / (log_sigma * std::sqrt(2 * (1 - shared))));
}

std::vector<Change> changes_of(const Question& q, const Mesh& mesh, const StepOptions& options,
                               double step_s) {
  const auto with = [&](const Machine& machine) {
    return predict(q.model, mesh, options, machine, q.stack).step_s;
  };
  constexpr double kMore = 1.1;
  std::vector<Change> changes;
  const auto add = [&](const std::string& what, auto&& change) {
    Machine machine = q.machine;
    change(machine);
    changes.push_back({what, with(machine), ""});
  };
  add("10 % more FLOP/s", [](Machine& m) {
    for (double* peak : {&m.fp32_tflops, &m.fp64_tflops, &m.bf16_tflops, &m.fp8_tflops})
      *peak *= kMore;
  });
  add("10 % more HBM bandwidth", [](Machine& m) { m.memory_gb_per_s *= kMore; });
  // Measured curves have no bandwidth to raise: the ratio is that of rings over the datasheet's.
  Machine rings = q.machine;
  rings.curves = "none";
  Machine faster = rings;
  faster.intra.gb_per_s *= kMore;
  changes.push_back({"10 % more bandwidth within nodes", step_s * with(faster) / with(rings),
                     q.machine.curves == "none" ? "" : "by rings in place of measured curves"});
  add("10 % more NIC bandwidth", [](Machine& m) { m.inter.gb_per_s *= kMore; });
  if (mesh.node_count() < 2) return changes;
  const bool leaves = q.machine.nodes_per_leaf > 0;
  add(leaves ? "leaves oversubscribed 2:1" : "each node a leaf, oversubscribed 2:1",
      [&](Machine& m) {
        if (!leaves) m.nodes_per_leaf = 1;
        m.oversubscription *= 2;
      });
  if (q.machine.nics_per_node > 1) {
    add("one NIC of a node lost", [](Machine& m) { --m.nics_per_node; });
  } else {
    changes.push_back({"one NIC of a node lost", std::nullopt, "its node has no other"});
  }
  return changes;
}

namespace {

int model_ranks(const Mesh& m) {
  return m.size(Axis::tp) * m.size(Axis::pp) * m.size(Axis::cp) * m.size(Axis::ep);
}

struct Rule {
  std::string name;
  std::function<bool(const Candidate&, const Mesh&)> follows;
};
std::vector<Rule> rules_of_thumb(const Space& space, const SearchResult& result) {
  const int node = std::min(space.question().machine.ranks_per_node, space.question().gpus);
  int least = space.question().gpus;
  for (const Scored& s : result.fitting) {
    if (s.candidate.zero <= 1)
      least = std::min(least, model_ranks(space.meshes()[s.candidate.mesh]));
  }
  return {
      {cat("tensor ranks fill the node: tp=", node),
       [=](const Candidate&, const Mesh& m) { return m.size(Axis::tp) == node; }},
      {"data parallelism alone, with zero=3",
       [](const Candidate& c, const Mesh& m) {
         return model_ranks(m) == 1 && m.size(Axis::rdp) == 1 && c.zero == 3;
       }},
      {"zero=3 within nodes, replicas of them",
       [=](const Candidate& c, const Mesh& m) {
         return model_ranks(m) == 1 && m.size(Axis::dp) == node && m.size(Axis::rdp) > 1 &&
                c.zero == 3;
       }},
      {cat("the smallest model parallelism that fits with zero 0 or 1: ", least, " ranks"),
       [=](const Candidate& c, const Mesh& m) { return c.zero <= 1 && model_ranks(m) == least; }},
      {"pipeline and data parallelism alone",
       [](const Candidate&, const Mesh& m) { return model_ranks(m) == m.size(Axis::pp); }},
      {"all layers recomputed",
       [](const Candidate& c, const Mesh&) { return c.recompute == Recompute::full; }},
      {"micro-batches of one sequence",
       [](const Candidate& c, const Mesh&) { return c.micro_batch == 1; }},
      {"pipelines of 1F1B",
       [&space](const Candidate& c, const Mesh& m) {
         return m.size(Axis::pp) > 1 && space.orders()[c.order].schedule == "1f1b";
       }},
  };
}

}  // namespace

std::vector<RuleResult> follow_rules(const Space& space, const SearchResult& result) {
  constexpr std::size_t kTried = 4;  // by closed form, the first that fits of them counts
  std::vector<RuleResult> results;
  for (const Rule& rule : rules_of_thumb(space, result)) {
    RuleResult followed{rule.name, std::nullopt};
    const auto follows = [&](const Candidate& c) {
      return rule.follows(c, space.meshes()[c.mesh]);
    };
    for (const Simulated& s : result.all) {
      if (follows(s.candidate)) {
        followed.best = s;
        break;
      }
    }
    // Closed forms that are faster than what has been simulated may be so in truth.
    std::size_t tried = 0;
    for (const Scored& s : result.fitting) {
      if (tried == kTried || (followed.best && s.least_s > followed.best->prediction.step_s)) break;
      if (!follows(s.candidate)) continue;
      ++tried;
      const Simulated one = simulate_candidate(space, s.candidate);
      if (one.fits && (!followed.best || one.prediction.step_s < followed.best->prediction.step_s))
        followed.best = one;
    }
    results.push_back(std::move(followed));
  }
  return results;
}

std::string rank_file(const Mesh& mesh) {
  Mesh usual = Mesh::parse(mesh.to_text());
  std::string text;
  std::map<int, int> taken;  // slots of a node
  std::vector<std::pair<int, int>> places(mesh.world());
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int node = mesh.node_of(rank);
    places[rank] = {node, taken[node]++};
  }
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const auto& [node, slot] = places[mesh.rank_of(usual.coordinates(rank))];
    text += cat("rank ", rank, "=+n", node, " slot=", slot, "\n");
  }
  return text;
}

}  // namespace mb
