#include "bench/analysis/critical_path.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "bench/analysis/matching.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Kind and name of a PathPart, in the order in which parts are told.
struct Class {
  int kind = 0;
  std::string name;
  auto operator<=>(const Class&) const = default;
};
constexpr const char* kKinds[] = {"compute", "recompute", "optimizer", "exposed",
                                  "copy",    "wait",      "host"};
enum Kind { kCompute, kRecompute, kOptimizer, kExposed, kCopy, kWait, kHost };

using Totals = std::map<Class, std::int64_t>;

std::string family_of(const Op& op) {
  const auto is = [&]<class... Kinds>(std::variant<Kinds...>*) {
    return (std::holds_alternative<Kinds>(op.kind) || ...);
  };
  if (is(static_cast<std::variant<Matmul, ExpertMatmul>*>(nullptr))) return "matmul";
  if (is(static_cast<
          std::variant<Attention, AttentionGradient, RingAttention, RingAttentionGradient>*>(
          nullptr)))
    return "attention";
  return "other";
}

Class class_of(const Plan& plan, const Instruction& i) {
  if (std::holds_alternative<Copy>(i.action)) return {kCopy, ""};
  const auto* compute = std::get_if<Compute>(&i.action);
  if (!compute) return {kExposed, axis_name(i)};
  if (i.label.pass == Pass::optimizer) return {kOptimizer, ""};
  if (i.label.pass == Pass::recompute) return {kRecompute, ""};
  return {kCompute, family_of(plan.op(*compute))};
}

// What a stage does for its micro-batches by itself: computation, and exchanges among ranks that
// share the tokens or the layers.
bool is_within_stage(const Class& of) {
  if (of.kind != kExposed) return of.kind == kCompute || of.kind == kRecompute;
  return of.name == "tp" || of.name == "cp" || of.name == "ep";
}

// The chain of one step, from its last instruction back to its first.
class Chain {
 public:
  Chain(const Plan& plan, const Timeline& timeline, std::int64_t uncertainty_ns)
      : plan_(plan),
        timeline_(timeline),
        uncertainty_ns_(uncertainty_ns),
        lanes_(lanes_of(plan, timeline)),
        last_(last_participants(plan, timeline)) {
    for (const Program& program : plan.programs) {
      std::vector<InstructionId>& before = before_.emplace_back();
      std::vector<Class>& classes = classes_.emplace_back();
      std::vector<InstructionId> last(kStreams, kNone);
      for (const Instruction& i : program.instructions) {
        InstructionId& previous = last[static_cast<int>(i.stream)];
        before.push_back(std::exchange(previous, static_cast<InstructionId>(before.size())));
        classes.push_back(class_of(plan, i));
      }
    }
  }

  Totals run() {
    window_ = timeline_.window();
    at_ns_ = window_.end_ns;
    Participant here = end();
    if (here.id == kNone) return {};
    // As many moves as instructions; clocks that contradict each other cannot make it more.
    std::size_t left = 0;
    for (const std::vector<Span>& lane : timeline_.lanes) left += lane.size();
    for (; here.id != kNone && left > 0; --left) {
      here = begin(here);
      here = before(here);
    }
    take(here.id == kNone ? Class{kHost, ""} : Class{kWait, ""}, window_.start_ns);
    cut_to_one_rank();
    return std::move(totals_);
  }

 private:
  const Span& span(Participant p) const { return timeline_.lanes[p.lane][p.id]; }
  int stage(Participant p) const { return lanes_[p.lane].stage; }
  const Instruction& instruction(Participant p) const {
    return plan_.programs[stage(p)].instructions[p.id];
  }

  // Gives the time from `from_ns` until where the chain stands to a class.
  void take(const Class& to, std::int64_t from_ns) {
    from_ns = std::clamp(from_ns, window_.start_ns, at_ns_);
    if (from_ns < at_ns_) totals_[to] += at_ns_ - from_ns;
    at_ns_ = from_ns;
  }

  Participant end() const {
    Participant latest;
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
      for (std::size_t id = 0; id < timeline_.lanes[lane].size(); ++id) {
        const Participant p{lane, static_cast<InstructionId>(id)};
        if (latest.id == kNone || span(p).end_ns > span(latest).end_ns) latest = p;
      }
    }
    return latest;
  }

  // Takes what an instruction did; returns it, or the last participant that it waited for.
  Participant begin(Participant p) {
    const Participant last = last_[p.lane][p.id];
    const std::int64_t arrival = span(last).start_ns;
    const bool waited = arrival > span(p).start_ns && span(p).end_ns >= arrival - uncertainty_ns_;
    const Class& of = classes_[stage(p)][p.id];
    const std::int64_t until_ns = at_ns_;
    take(of, waited ? arrival : span(p).start_ns);
    note(p, of, until_ns - at_ns_);
    return waited ? last : p;
  }

  // The one that ended last of those that it had to come after in its own rank, its own stream's
  // first among equals; what lies between is the host's.
  Participant before(Participant p) {
    Participant latest{p.lane, before_[stage(p)][p.id]};
    for (const InstructionId id : plan_.programs[stage(p)].after(instruction(p))) {
      const Participant other{p.lane, id};
      if (latest.id == kNone || span(other).end_ns > span(latest).end_ns) latest = other;
    }
    if (latest.id != kNone) take({kHost, ""}, span(latest).end_ns);
    return latest;
  }

  // Of one kind of pass: what the chain did within stages, and in how many of their slots.
  struct Passes {
    Totals totals;
    std::set<std::tuple<int, int, int>> slots;  // (stage, chunk, micro-batch)
  };
  static int kind_of(Pass pass) {
    return pass == Pass::forward ? 0 : pass == Pass::weight_grad ? 2 : 1;
  }

  void note(Participant p, const Class& of, std::int64_t ns) {
    const Label& label = instruction(p).label;
    if (!is_within_stage(of) || label.pass == Pass::input || label.pass == Pass::reduce) return;
    Passes& passes = passes_[kind_of(label.pass)];
    passes.totals[of] += ns;
    passes.slots.insert({stage(p), label.chunk, label.micro_batch});
  }

  // Moves what the chain does in more slots than a rank has to `wait`.
  void cut_to_one_rank() {
    int chunks = 1;
    for (const Slot& slot : plan_.programs[0].slots) chunks = std::max(chunks, slot.chunk + 1);
    const double own = 1.0 * plan_.micro_batches * chunks;
    std::int64_t wait = 0;
    for (const Passes& passes : passes_) {
      const double share = own / std::max(own, static_cast<double>(passes.slots.size()));
      for (const auto& [of, ns] : passes.totals) {
        const std::int64_t cut = ns - std::llround(share * static_cast<double>(ns));
        totals_[of] -= cut;
        wait += cut;
      }
    }
    if (wait > 0) totals_[{kWait, ""}] += wait;
  }

  const Plan& plan_;
  const Timeline& timeline_;
  std::int64_t uncertainty_ns_;
  std::vector<Lane> lanes_;
  LastParticipants last_;
  std::vector<std::int64_t> on_lane_ns_;            // of the chain, within stages
  std::vector<std::vector<InstructionId>> before_;  // on the same stream, by stage
  std::vector<std::vector<Class>> classes_;         // by stage
  Span window_;
  std::int64_t at_ns_ = 0;  // how far back the chain has come
  Totals totals_;
  std::array<Passes, 3> passes_;
};

}  // namespace

CriticalPath critical_path(const Plan& plan, std::span<const Timeline> steps,
                           std::int64_t clock_uncertainty_ns) {
  CriticalPath path;
  Totals all;
  for (const Timeline& step : steps) {
    const Span window = step.window();
    path.window_ns += window.end_ns - window.start_ns;
    for (const auto& [of, ns] : Chain(plan, step, clock_uncertainty_ns).run()) all[of] += ns;
  }
  // Axes in the order of CommAxes, the rest by kind.
  const std::vector<std::string> axes = comm_axes(plan).names;
  const auto add = [&](const Class& of) {
    const auto found = all.find(of);
    if (found == all.end() || found->second == 0) return;
    path.parts.push_back({kKinds[of.kind], of.name, found->second});
  };
  for (const char* family : {"matmul", "attention", "other"}) add({kCompute, family});
  for (const Kind kind : {kRecompute, kOptimizer}) add({kind, ""});
  for (const std::string& axis : axes) add({kExposed, axis});
  for (const Kind kind : {kCopy, kWait, kHost}) add({kind, ""});
  std::int64_t sum = 0;
  for (const PathPart& part : path.parts) sum += part.total_ns;
  require(sum == path.window_ns, "the parts of the critical path add up to ", sum, " ns, not ",
          path.window_ns);
  return path;
}

}  // namespace mb
