#include "parallel/exec/folded_step.h"

#include <algorithm>
#include <cassert>

#include "parallel/exec/folded_runs.h"

namespace mb {

using folded::Arrival;
using folded::Before;
using folded::Cell;
using folded::Entry;
using folded::Meeting;
using folded::Output;
using folded::Run;
using folded::Step;
using folded::Type;

std::uint64_t folded::hash_of(std::span<const std::int64_t> numbers) {
  std::uint64_t hash = numbers.size();
  for (const std::int64_t number : numbers) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

void FoldedStep::Runs::go_through(Run run) {
  Type& type = types[run.type];
  const Cell* inputs = cells.data() + run.inputs;
  std::int64_t base = 0;
  for (int b = 0; b < type.steps.front().befores; ++b) {
    const Before& before = type.befores[b];
    base = std::max(base, times[inputs[before.index]] + before.delay_ns);
  }
  lags.resize(type.inputs);
  for (std::int32_t i = 0; i < type.inputs; ++i)
    lags[i] = std::max(times[inputs[i]] - base, type.least_lag[i]);
  const std::uint64_t hash = folded::hash_of(lags);
  const auto found = type.known.find(hash);
  std::size_t at = 0;
  if (found != type.known.end() &&
      std::equal(lags.begin(), lags.end(), type.records.begin() + found->second)) {
    at = found->second;
  } else {
    at = record(type, hash);
  }
  const std::int64_t* results = type.records.data() + at + type.inputs;
  const Cell* outputs = cells.data() + run.outputs;
  for (std::size_t o = 0; o < type.outputs.size(); ++o) times[outputs[o]] = base + results[o];
}

// Goes through a run that starts at 0.
std::size_t FoldedStep::Runs::record(Type& type, std::uint64_t hash) {
  ++counts.recorded;
  starts.resize(type.steps.size());
  ends.resize(type.steps.size());
  for (std::size_t s = 0; s < type.steps.size(); ++s) {
    const Step& step = type.steps[s];
    std::int64_t start = s == 0 ? 0 : folded::kNever;
    for (int b = step.first_before; b < step.first_before + step.befores; ++b) {
      const Before& before = type.befores[b];
      const std::int64_t time = before.kind == Before::Kind::input      ? lags[before.index]
                                : before.kind == Before::Kind::step_end ? ends[before.index]
                                                                        : starts[before.index];
      start = std::max(start, time + before.delay_ns);
    }
    starts[s] = start;
    ends[s] = start + step.duration_ns;
  }
  const std::size_t at = type.records.size();
  type.records.insert(type.records.end(), lags.begin(), lags.end());
  for (const Output& output : type.outputs)
    type.records.push_back(output.is_start ? starts[output.step] : ends[output.step]);
  type.known[hash] = at;
  return at;
}

FoldedStep::FoldedStep(const Plan& plan, const RankClasses& classes, const StepCosts& costs)
    : runs_(cut_into_runs(plan, classes, costs)) {
  assert(costs.interference.empty());
}
FoldedStep::~FoldedStep() = default;

std::int64_t FoldedStep::end_ns() {
  Runs& runs = *runs_;
  for (const Entry& entry : runs.entries) {
    if (entry.kind == Entry::Kind::run) {
      runs.go_through(runs.runs[entry.index]);
    } else if (entry.kind == Entry::Kind::arrive) {
      const Arrival& arrival = runs.arrivals[entry.index];
      std::int64_t at = 0;
      for (std::uint32_t w = arrival.begin; w < arrival.end; ++w)
        at = std::max(at, runs.times[runs.waits[w].cell] + runs.waits[w].delay_ns);
      runs.times[arrival.at] = at;
    } else {
      const Meeting& meeting = runs.meetings[entry.index];
      std::int64_t at = 0;
      for (std::uint32_t p = meeting.begin; p < meeting.end; ++p)
        at = std::max(at, runs.times[runs.cells[p]]);
      for (std::uint32_t p = meeting.end; p < 2 * meeting.end - meeting.begin; ++p)
        runs.times[runs.cells[p]] = at + meeting.duration_ns;
    }
  }
  std::int64_t end = 0;
  for (const Cell cell : runs.last) end = std::max(end, runs.times[cell]);
  return end;
}

void FoldedStep::forget() {
  for (Type& type : runs_->types) {
    type.known.clear();
    type.records.clear();
  }
  runs_->counts.recorded = 0;
}

FoldedStep::Counts FoldedStep::counts() const { return runs_->counts; }

}  // namespace mb
