#include "parallel/exec/jitter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>

namespace mb {
namespace {

// Draws that go through a walk together: as many as fit into the cache with a large plan.
constexpr int kBatch = 16;
using Lanes = std::array<double, kBatch>;

// Inverse of the upper tail of the normal distribution by rational functions (Acklam, 2003; 1e-9).
double normal_above(double p) {
  if (p > 0.5) return -normal_above(1 - p);
  if (p < 0.02425) {
    const double q = std::sqrt(-2 * std::log(p));
    return -(((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838) * q -
               2.549732539343734) *
                  q +
              4.374664141464968) *
                 q +
             2.938163982698783) /
           ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996) * q +
             3.754408661907416) *
                q +
            1);
  }
  const double q = 0.5 - p, r = q * q;
  return (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
            1.383577518672690e+02) *
               r -
           3.066479806614716e+01) *
              r +
          2.506628277459239) *
         q /
         (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
            6.680131188771972e+01) *
               r -
           1.328068155288572e+01) *
              r +
          1);
}

class Draws {  // SplitMix64 (Steele et al., 2014)
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  Lanes lanes(const LargestOf& of) {
    Lanes lanes;
    constexpr int kEach = 64 / LargestOf::kBits;
    std::uint64_t bits = 0;
    for (int i = 0; i < kBatch; ++i, bits >>= LargestOf::kBits) {
      if (i % kEach == 0) bits = next();
      lanes[i] = of.at(static_cast<std::uint32_t>(bits));
    }
    return lanes;
  }

 private:
  std::uint64_t state_;
};

// One for each number that is asked for.
class LargestTable {
 public:
  const LargestOf& of(int n) {
    std::unique_ptr<LargestOf>& table = tables_[n];
    if (!table) table = std::make_unique<LargestOf>(n);
    return *table;
  }

 private:
  std::map<int, std::unique_ptr<LargestOf>> tables_;
};

// Noise that ranks of a class have gathered since they last met in groups of one kind.
struct Gathered {
  Group group;
  int members = 1;  // of the group, in this class
  const LargestOf *others = nullptr, *all = nullptr;
  double variance = 0;
  Lanes own{};
};

class JitterWalk {
 public:
  JitterWalk(const Plan& plan, const RankClasses& classes, const StepCosts& costs,
             const Jitter& jitter, double step_s)
      : plan_(plan), classes_(classes), costs_(costs), jitter_(jitter), step_s_(step_s) {
    for (int c = 0; c < classes.count(); ++c) {
      const RankClasses::Class& self = classes.at(c);
      const Program& program = plan.programs[self.stage];
      State& state = states_.emplace_back();
      state.program = &program;
      state.durations = durations_of(plan, classes, c, costs);
      state.ends.resize(program.instructions.size());
      state.largest = &table_.of(self.ranks);
      if (!costs.launched_ns.empty()) {
        state.waited_at = host_waited_at(program, costs.host_waits);
        state.starts.resize(program.instructions.size());
      }
      for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size());
           ++id) {
        if (std::holds_alternative<Compute>(program.instructions[id].action))
          state.computes.push_back(id);
      }
    }
  }

  Lanes run(const WalkOrder& order, std::uint64_t seed) {
    for (int c = 0; c < classes_.count(); ++c) begin(c, seed + 0x632be59bd9b4e019u * (c + 1));
    for (const WalkEvent& event : order.events) {
      if (event.kind == WalkEvent::Kind::meet) {
        meet(order.parties_of(event.id));
        continue;
      }
      State& state = states_[event.of];
      const Instruction& instruction = state.program->instructions[event.id];
      Lanes at = start_of(state, event.id, instruction);
      if (!state.starts.empty()) state.starts[event.id] = at;
      if (const auto* collective = std::get_if<Collective>(&instruction.action))
        wait_for_members(state, classes_.index_of(collective->group), at);
      if (event.kind == WalkEvent::Kind::run) take(state, event.id, instruction, at);
      state.ends[event.id] = at;
      if (event.kind == WalkEvent::Kind::run) state.free[static_cast<int>(instruction.stream)] = at;
    }
    Lanes last{};
    for (const State& state : states_) {
      for (const Lanes& free : state.free) {
        for (int i = 0; i < kBatch; ++i) last[i] = std::max(last[i], free[i]);
      }
    }
    return last;
  }

 private:
  struct State {
    const Program* program = nullptr;
    std::vector<std::int64_t> durations;
    std::vector<Lanes> ends;    // of what has arrived alone, the arrival
    std::vector<Lanes> starts;  // with a host
    std::vector<InstructionId> waited_at, computes;
    std::array<Lanes, kStreams> free;
    std::vector<Gathered> gathered;  // by index of the group
    const LargestOf* largest = nullptr;
    Lanes slower;  // for the slowest GPU
    std::multimap<InstructionId, int> stalls;
    Draws draws{0};
  };

  void begin(int c, std::uint64_t seed) {
    State& state = states_[c];
    state.draws = Draws(seed);
    for (Lanes& free : state.free) free.fill(-static_cast<double>(costs_.gap_ns));
    state.slower = state.draws.lanes(*state.largest);
    for (double& slower : state.slower) slower = std::max(0.0, 1 + jitter_.gpu * slower);
    state.gathered.clear();
    for (std::size_t g = 0; g < classes_.groups().size(); ++g) {
      Gathered& gathered = state.gathered.emplace_back();
      gathered.group = plan_.mesh.spanned(classes_.groups()[g]);
      for (const ClassShare& share : classes_.at(c).groups[g].shares)
        if (share.of == c) gathered.members = share.ranks;
      gathered.others = &table_.of(std::max(1, gathered.members - 1));
      gathered.all = &table_.of(gathered.members);
    }
    state.stalls.clear();
    const double stalls = jitter_.stalls_per_gpu_hour / 3600 * step_s_ * classes_.at(c).ranks;
    if (stalls <= 0 || jitter_.stall_s <= 0 || state.computes.empty()) return;
    std::mt19937_64 random(state.draws.next());
    std::poisson_distribution<int> count(stalls);
    for (int lane = 0; lane < kBatch; ++lane) {
      for (int left = count(random); left > 0; --left)
        state.stalls.emplace(state.computes[random() % state.computes.size()], lane);
    }
  }

  Lanes start_of(const State& state, InstructionId id, const Instruction& instruction) const {
    Lanes start = state.free[static_cast<int>(instruction.stream)];
    for (double& ns : start) ns += static_cast<double>(costs_.gap_ns);
    const auto after = [&](const Lanes& other, double more = 0) {
      for (int i = 0; i < kBatch; ++i) start[i] = std::max(start[i], other[i] + more);
    };
    for (const InstructionId before : state.program->after(instruction))
      after(state.ends[before], static_cast<double>(costs_.handoff_ns));
    if (state.waited_at.empty()) return start;
    const auto& launched = costs_.launched_ns[state.program->stage];
    const InstructionId at = state.waited_at[id];
    if (at == kNone) {
      after(Lanes{}, static_cast<double>(launched[id]));
    } else {
      after(state.starts[at], static_cast<double>(launched[id] - launched[at]));
    }
    return start;
  }

  // Moves `at` to when the latest member of the group is there.
  void wait_for_members(State& state, int group, Lanes& at) {
    Gathered& met = state.gathered[group];
    if (met.members < 2 || met.variance == 0) return;
    const double sigma = std::sqrt(met.variance);
    const Lanes latest = state.draws.lanes(*met.others);
    Lanes wait;
    for (int i = 0; i < kBatch; ++i) {
      wait[i] = std::max(0.0, sigma * latest[i] - met.own[i]);
      at[i] += wait[i];
    }
    const double variance = met.variance;
    for (Gathered& other : state.gathered) {
      const bool within = (other.group.axes & ~met.group.axes) == 0 &&
                          (met.group.part == 0 || met.group == other.group);
      if (within) {  // they have met by the way
        other.variance = 0;
        other.own = {};
        continue;
      }
      // Of a group of groups each now is as late as its latest member.
      other.variance = std::max(0.0, other.variance + (met.all->variance() - 1) * variance);
      for (int i = 0; i < kBatch; ++i) other.own[i] += wait[i] - sigma * met.all->mean();
    }
  }

  // Moves `at` from the start to the end of an instruction.
  void take(State& state, InstructionId id, const Instruction& instruction, Lanes& at) {
    const auto duration = static_cast<double>(state.durations[id]);
    if (!std::holds_alternative<Compute>(instruction.action)) {
      for (double& ns : at) ns += duration;
      return;
    }
    for (int i = 0; i < kBatch; ++i) at[i] += duration * state.slower[i];
    if (jitter_.op > 0 && duration > 0) {
      const double sigma = jitter_.op * duration;
      Lanes noise = state.draws.lanes(table_one_);
      for (double& ns : noise) ns *= sigma;
      for (int i = 0; i < kBatch; ++i) at[i] += noise[i];
      for (Gathered& gathered : state.gathered) {
        if (gathered.members < 2) continue;
        gathered.variance += sigma * sigma;
        for (int i = 0; i < kBatch; ++i) gathered.own[i] += noise[i];
      }
    }
    const auto [first, last] = state.stalls.equal_range(id);
    for (auto stall = first; stall != last; ++stall) at[stall->second] += 1e9 * jitter_.stall_s;
  }

  void meet(std::span<const Party> parties) {
    Lanes end{};
    std::int64_t duration = 0;
    for (const Party& party : parties) {
      const State& state = states_[party.of];
      for (int i = 0; i < kBatch; ++i) end[i] = std::max(end[i], state.ends[party.id][i]);
      duration = std::max(duration, state.durations[party.id]);
    }
    for (double& ns : end) ns += static_cast<double>(duration);
    for (const Party& party : parties) {
      State& state = states_[party.of];
      state.ends[party.id] = end;
      state.free[static_cast<int>(state.program->instructions[party.id].stream)] = end;
    }
  }

  const Plan& plan_;
  const RankClasses& classes_;
  const StepCosts& costs_;
  const Jitter& jitter_;
  double step_s_;
  LargestTable table_;
  const LargestOf& table_one_ = table_.of(1);
  std::vector<State> states_;
};

}  // namespace

LargestOf::LargestOf(int n) : values_(std::size_t{1} << kBits) {
  const auto count = static_cast<double>(values_.size());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    // That all of n are below has the probability u: each is above with 1 - u^(1/n).
    const double u = (static_cast<double>(i) + 0.5) / count;
    values_[i] = normal_above(-std::expm1(std::log(u) / n));
    mean_ += values_[i] / count;
  }
  for (const double value : values_) variance_ += (value - mean_) * (value - mean_) / count;
}

double StepSpread::mean_s() const {
  return std::accumulate(steps_s.begin(), steps_s.end(), 0.0) / static_cast<double>(steps_s.size());
}

double StepSpread::quantile_s(double share) const {
  const double place = share * static_cast<double>(steps_s.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, steps_s.size() - 1);
  return steps_s[below] + (place - static_cast<double>(below)) * (steps_s[above] - steps_s[below]);
}

StepSpread spread_of_step(const Plan& plan, const RankClasses& classes, const StepCosts& costs,
                          const Jitter& jitter, std::uint64_t seed, int lanes) {
  const WalkOrder order = walk(plan, classes, costs.host_waits);
  const Span window = timeline_of(plan, classes, costs, order).window();
  JitterWalk jittered(plan, classes, costs, jitter, 1e-9 * static_cast<double>(window.end_ns));
  // Draws go through a step in which nothing slows others, and are stretched by what that adds.
  const double stretched =
      costs.interference.empty()
          ? 1.0
          : static_cast<double>(timeline_of(plan, classes, costs).window().end_ns) /
                static_cast<double>(window.end_ns);
  StepSpread spread;
  for (std::uint64_t batch = 0; static_cast<int>(spread.steps_s.size()) < lanes; ++batch) {
    for (const double end_ns : jittered.run(order, seed * 0x2545f4914f6cdd1du + batch)) {
      const double step_ns = end_ns - static_cast<double>(window.start_ns);
      if (static_cast<int>(spread.steps_s.size()) < lanes)
        spread.steps_s.push_back(1e-9 * step_ns * stretched);
    }
  }
  std::sort(spread.steps_s.begin(), spread.steps_s.end());
  return spread;
}

}  // namespace mb
