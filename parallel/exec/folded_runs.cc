// Cuts the events of a walk into runs.
#include "parallel/exec/folded_runs.h"

#include <algorithm>
#include <array>
#include <utility>

namespace mb {

using namespace folded;

namespace {

// What an instruction starts after, in its own class; kNone: the beginning of the step.
struct Dependency {
  InstructionId id = kNone;
  bool is_start = false;
  std::int64_t delay_ns = 0;
};

struct ClassOfRun {  // a class as it is cut
  const Program* program = nullptr;
  std::vector<std::int64_t> durations;
  std::vector<InstructionId> waited_at, before;  // by instruction; the one before on its stream
  std::array<InstructionId, kStreams> last;      // by stream
  std::vector<Cell> ends, starts;                // by instruction; kNone: nobody else waits for it
  std::vector<std::int32_t> run;                 // by instruction; kNone: a meeting
  std::int32_t open = kNone;                     // the run that goes on
};

}  // namespace

class FoldedStep::Builder {
 public:
  Builder(const Plan& plan, const RankClasses& classes, const StepCosts& costs)
      : costs_(costs), order_(walk(plan, classes, costs.host_waits)) {
    runs_->times = {0};
    for (int c = 0; c < classes.count(); ++c) {
      ClassOfRun& of = of_.emplace_back();
      of.program = &plan.programs[classes.at(c).stage];
      of.durations = durations_of(plan, classes, c, costs);
      if (!costs.launched_ns.empty()) of.waited_at = host_waited_at(*of.program, costs.host_waits);
      const std::size_t count = of.program->instructions.size();
      for (auto* numbers : {&of.before, &of.ends, &of.starts, &of.run})
        numbers->assign(count, kNone);
      of.last.fill(kNone);
      for (InstructionId id = 0; id < static_cast<InstructionId>(count); ++id) {
        InstructionId& last = of.last[static_cast<int>(of.program->instructions[id].stream)];
        of.before[id] = std::exchange(last, id);
      }
      runs_->counts.instructions += static_cast<std::int64_t>(count);
    }
  }

  std::unique_ptr<Runs> build() {
    cut();
    for (int c = 0; c < static_cast<int>(of_.size()); ++c) give_cells(c);
    for (std::size_t r = 0; r < lists_.size(); ++r)
      runs_->runs.push_back(run_of(class_of_list_[r], lists_[r]));
    for (const auto& [c, id] : arriving_) add_arrival(c, id);
    for (std::size_t m = 0; m < order_.ends_of_meeting.size(); ++m)
      add_meeting(order_.parties_of(static_cast<int>(m)));
    runs_->counts.runs = static_cast<std::int64_t>(runs_->runs.size());
    runs_->counts.types = static_cast<std::int64_t>(runs_->types.size());
    return std::move(runs_);
  }

 private:
  // Entries, and which instructions each run has. A run comes before the first event that could
  // wait for it.
  void cut() {
    const auto close = [&](int c) {
      if (of_[c].open != kNone) runs_->entries.push_back({Entry::Kind::run, of_[c].open});
      of_[c].open = kNone;
    };
    for (const WalkEvent& event : order_.events) {
      if (event.kind == WalkEvent::Kind::meet) {
        for (const Party& party : order_.parties_of(event.id)) close(party.of);
        runs_->entries.push_back({Entry::Kind::meet, event.id});
        continue;
      }
      ClassOfRun& of = of_[event.of];
      if (event.kind == WalkEvent::Kind::arrive) {
        close(event.of);
        runs_->entries.push_back(
            {Entry::Kind::arrive, static_cast<std::int32_t>(arriving_.size())});
        arriving_.push_back({event.of, event.id});
        continue;
      }
      if (of.open == kNone) {
        of.open = static_cast<std::int32_t>(lists_.size());
        lists_.emplace_back();
        class_of_list_.push_back(event.of);
      }
      of.run[event.id] = of.open;
      lists_[of.open].push_back(event.id);
    }
    for (int c = 0; c < static_cast<int>(of_.size()); ++c) close(c);
  }

  const std::vector<Dependency>& dependencies(const ClassOfRun& of, InstructionId id) {
    dependencies_.clear();
    if (of.before[id] != kNone) dependencies_.push_back({of.before[id], false, costs_.gap_ns});
    for (const InstructionId before : of.program->after(of.program->instructions[id]))
      dependencies_.push_back({before, false, costs_.handoff_ns});
    if (!of.waited_at.empty()) {
      const auto& launched = costs_.launched_ns[of.program->stage];
      const InstructionId at = of.waited_at[id];
      dependencies_.push_back({at, true, launched[id] - (at == kNone ? 0 : launched[at])});
    }
    if (dependencies_.empty()) dependencies_.push_back({kNone, true, 0});
    return dependencies_;
  }

  Cell cell_of(ClassOfRun& of, const Dependency& dependency) {
    if (dependency.id == kNone) return kZero;
    Cell& cell = (dependency.is_start ? of.starts : of.ends)[dependency.id];
    if (cell == kNone) {
      cell = static_cast<Cell>(runs_->times.size());
      runs_->times.push_back(0);
    }
    return cell;
  }

  // To all that is waited for from elsewhere.
  void give_cells(int c) {
    ClassOfRun& of = of_[c];
    for (InstructionId id = 0; id < static_cast<InstructionId>(of.run.size()); ++id) {
      if (of.run[id] == kNone) cell_of(of, {id});
      for (const Dependency& d : dependencies(of, id)) {
        if (d.id == kNone || of.run[id] == kNone || of.run[d.id] != of.run[id]) cell_of(of, d);
      }
    }
    for (const InstructionId last : of.last) {
      if (last != kNone) runs_->last.push_back(cell_of(of, {last}));
    }
  }

  Run run_of(int c, const std::vector<InstructionId>& list) {
    ClassOfRun& of = of_[c];
    Type type;
    std::vector<Cell> inputs, outputs;
    std::unordered_map<InstructionId, std::int32_t> place;
    for (const InstructionId id : list) {
      const auto step = static_cast<std::int32_t>(type.steps.size());
      place[id] = step;
      type.steps.push_back({.duration_ns = of.durations[id],
                            .first_before = static_cast<std::int32_t>(type.befores.size())});
      for (const Dependency& d : dependencies(of, id)) {
        if (d.id != kNone && of.run[d.id] == of.run[id]) {
          type.befores.push_back({d.is_start ? Before::Kind::step_start : Before::Kind::step_end,
                                  place.at(d.id), d.delay_ns});
          continue;
        }
        const Cell cell = cell_of(of, d);
        const auto known = std::find(inputs.begin(), inputs.end(), cell);
        type.befores.push_back(
            {Before::Kind::input, static_cast<std::int32_t>(known - inputs.begin()), d.delay_ns});
        if (known == inputs.end()) inputs.push_back(cell);
      }
      type.steps.back().befores =
          static_cast<std::int32_t>(type.befores.size()) - type.steps.back().first_before;
      for (const bool is_start : {false, true}) {
        const Cell cell = (is_start ? of.starts : of.ends)[id];
        if (cell == kNone) continue;
        type.outputs.push_back({step, is_start});
        outputs.push_back(cell);
      }
    }
    type.inputs = static_cast<std::int32_t>(inputs.size());
    return {type_of(std::move(type)), append(inputs), append(outputs)};
  }

  std::uint32_t append(const std::vector<Cell>& cells) {
    const auto begin = static_cast<std::uint32_t>(runs_->cells.size());
    runs_->cells.insert(runs_->cells.end(), cells.begin(), cells.end());
    return begin;
  }

  std::int32_t type_of(Type type) {
    std::vector<std::int64_t> numbers;
    for (const Step& step : type.steps) {
      numbers.push_back(step.duration_ns);
      numbers.push_back(step.befores);
    }
    for (const Before& before : type.befores) {
      numbers.push_back(before.index * 4 + static_cast<int>(before.kind));
      numbers.push_back(before.delay_ns);
    }
    std::vector<std::int32_t>& alike = type_index_[hash_of(numbers)];
    for (const std::int32_t known : alike) {
      if (runs_->types[known] == type) return known;
    }
    bound_lags(type);
    alike.push_back(static_cast<std::int32_t>(runs_->types.size()));
    runs_->types.push_back(std::move(type));
    return alike.back();
  }

  static void bound_lags(Type& type) {
    std::vector<bool> follows(type.steps.size());  // the first step
    type.least_lag.assign(type.inputs, 0);
    for (std::size_t s = 0; s < type.steps.size(); ++s) {
      const Step& step = type.steps[s];
      const std::span<const Before> befores(type.befores.data() + step.first_before, step.befores);
      follows[s] = s == 0 || std::any_of(befores.begin(), befores.end(), [&](const Before& b) {
                     return b.kind != Before::Kind::input && follows[b.index];
                   });
      for (const Before& before : befores) {
        if (before.kind != Before::Kind::input) continue;
        std::int64_t& least = type.least_lag[before.index];
        least = std::min(least, follows[s] ? -before.delay_ns : kNever);
      }
    }
  }

  void add_arrival(int c, InstructionId id) {
    ClassOfRun& of = of_[c];
    Arrival arrival{.begin = static_cast<std::uint32_t>(runs_->waits.size())};
    for (const Dependency& d : dependencies(of, id))
      runs_->waits.push_back({cell_of(of, d), d.delay_ns});
    arrival.end = static_cast<std::uint32_t>(runs_->waits.size());
    arrival.at = cell_of(of, {id, true});
    runs_->arrivals.push_back(arrival);
  }

  void add_meeting(std::span<const Party> parties) {
    Meeting meeting{.begin = static_cast<std::uint32_t>(runs_->cells.size())};
    for (const Party& party : parties) {
      meeting.duration_ns = std::max(meeting.duration_ns, of_[party.of].durations[party.id]);
      runs_->cells.push_back(cell_of(of_[party.of], {party.id, true}));
    }
    meeting.end = static_cast<std::uint32_t>(runs_->cells.size());
    for (const Party& party : parties) runs_->cells.push_back(cell_of(of_[party.of], {party.id}));
    runs_->meetings.push_back(meeting);
  }

  const StepCosts& costs_;
  WalkOrder order_;
  std::vector<ClassOfRun> of_;
  std::vector<std::vector<InstructionId>> lists_;  // of runs
  std::vector<int> class_of_list_;
  std::vector<std::pair<int, InstructionId>> arriving_;
  std::vector<Dependency> dependencies_;
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> type_index_;
  std::unique_ptr<Runs> runs_ = std::make_unique<Runs>();
};

std::unique_ptr<FoldedStep::Runs> FoldedStep::cut_into_runs(const Plan& plan,
                                                            const RankClasses& classes,
                                                            const StepCosts& costs) {
  return Builder(plan, classes, costs).build();
}

}  // namespace mb
