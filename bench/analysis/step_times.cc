#include "bench/analysis/step_times.h"

#include <algorithm>
#include <numeric>

#include "bench/analysis/intervals.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::int64_t kNever = INT64_MAX;

bool is_backward(Pass pass) {
  return pass == Pass::backward || pass == Pass::input_grad || pass == Pass::weight_grad ||
         pass == Pass::recompute;
}

// What one lane did, as sets of instants. The exposed ones are disjoint, and disjoint from compute.
struct LaneSets {
  Intervals compute, memory, effective;
  std::array<Intervals, kPasses> pass;
  Intervals all_comm, busy;
  std::vector<Intervals> comm, transfer;
  std::vector<Intervals> exposed_transfer, exposed_wait;  // by axis
  Intervals exposed_memory;
  std::int64_t invalid_spans = 0;
};

// Removes what `taken` holds from `set`, and adds the rest to it.
Intervals take(const Intervals& set, Intervals& taken) {
  Intervals rest = subtract(set, taken);
  taken = unite(taken, rest);
  return rest;
}

// Spans of a lane by class; communication also split at the last arrival.
struct LaneSpans {
  std::vector<Span> compute, memory;
  std::array<std::vector<Span>, kPasses> pass;
  std::vector<std::vector<Span>> comm, transfer, wait;  // by axis
  std::int64_t invalid = 0;
};

LaneSpans spans_of(const Program& program, const std::vector<std::int8_t>& axis_of, int axes,
                   const std::vector<Span>& lane, const std::vector<std::int64_t>& arrivals,
                   std::int64_t uncertainty_ns) {
  LaneSpans out;
  out.comm.resize(axes), out.transfer.resize(axes), out.wait.resize(axes);
  for (std::size_t id = 0; id < lane.size(); ++id) {
    const Instruction& instruction = program.instructions[id];
    const Span& span = lane[id];
    const int axis = axis_of[id];
    if (span.end_ns < span.start_ns) {
      ++out.invalid;
    } else if (axis >= 0) {
      const WaitTransfer split = split_at(span, arrivals[id], uncertainty_ns);
      out.comm[axis].push_back(span);
      out.wait[axis].push_back(split.wait);
      out.transfer[axis].push_back(split.transfer);
    } else if (std::holds_alternative<Copy>(instruction.action)) {
      out.memory.push_back(span);
    } else {
      out.compute.push_back(span);
      out.pass[static_cast<int>(instruction.label.pass)].push_back(span);
    }
  }
  return out;
}

LaneSets sets_of(LaneSpans spans) {
  LaneSets sets;
  sets.invalid_spans = spans.invalid;
  sets.compute = unite(std::move(spans.compute));
  for (int pass = 0; pass < kPasses; ++pass) sets.pass[pass] = unite(std::move(spans.pass[pass]));
  sets.memory = unite(std::move(spans.memory));
  sets.effective = unite(sets.compute, sets.memory);
  Intervals taken = sets.compute;
  for (std::vector<Span>& axis : spans.transfer) {
    sets.transfer.push_back(unite(std::move(axis)));
    sets.effective = unite(sets.effective, sets.transfer.back());
    sets.exposed_transfer.push_back(take(sets.transfer.back(), taken));
  }
  for (std::vector<Span>& axis : spans.wait)
    sets.exposed_wait.push_back(take(unite(std::move(axis)), taken));
  for (std::vector<Span>& axis : spans.comm) {
    sets.comm.push_back(unite(std::move(axis)));
    sets.all_comm = unite(sets.all_comm, sets.comm.back());
  }
  sets.exposed_memory = take(sets.memory, taken);
  sets.busy = std::move(taken);
  return sets;
}

// Where a lane's forwards and backwards begin and end.
struct PassMarks {
  std::int64_t first_forward = kNever, last_forward = -kNever;
  std::int64_t first_backward = kNever, last_backward = -kNever;
  std::int64_t forward_ns = 0, backward_ns = 0, weight_grad_ns = 0;
  bool complete() const { return first_forward != kNever && first_backward != kNever; }
};

PassMarks marks_of(const Program& program, const std::vector<Span>& lane) {
  PassMarks marks;
  for (std::size_t id = 0; id < lane.size(); ++id) {
    const Instruction& i = program.instructions[id];
    const Span& span = lane[id];
    if (!std::holds_alternative<Compute>(i.action) || span.end_ns < span.start_ns) continue;
    if (i.label.pass == Pass::forward) {
      marks.first_forward = std::min(marks.first_forward, span.start_ns);
      marks.last_forward = std::max(marks.last_forward, span.end_ns);
      marks.forward_ns += length_ns(span);
    } else if (is_backward(i.label.pass)) {
      marks.first_backward = std::min(marks.first_backward, span.start_ns);
      marks.last_backward = std::max(marks.last_backward, span.end_ns);
      marks.backward_ns += length_ns(span);
      if (i.label.pass == Pass::weight_grad) marks.weight_grad_ns += length_ns(span);
    }
  }
  return marks;
}

Phase phase_of(const LaneSets& sets, Span window) {
  Phase phase;
  if (window.end_ns <= window.start_ns) window.end_ns = window.start_ns;
  phase.window_ns = length_ns(window);
  phase.compute_ns = length_within_ns(sets.compute, window);
  for (const Intervals& axis : sets.exposed_transfer)
    phase.transfer_ns.push_back(length_within_ns(axis, window));
  for (const Intervals& axis : sets.exposed_wait)
    phase.wait_ns.push_back(length_within_ns(axis, window));
  phase.memory_ns = length_within_ns(sets.exposed_memory, window);
  phase.idle_ns = phase.window_ns - length_within_ns(sets.busy, window);
  return phase;
}

Bubble bubble_of(const LaneSets& sets, const PassMarks& marks, Span window) {
  Bubble bubble{.window = window,
                .forward_ns = marks.forward_ns,
                .backward_ns = marks.backward_ns,
                .weight_grad_ns = marks.weight_grad_ns};
  const std::int64_t cool_down = std::max(marks.last_forward, marks.first_backward);
  bubble.warm_up = phase_of(sets, {window.start_ns, marks.first_backward});
  bubble.steady = phase_of(sets, {marks.first_backward, cool_down});
  bubble.cool_down = phase_of(sets, {cool_down, window.end_ns});
  bubble.compute_ns =
      bubble.warm_up.compute_ns + bubble.steady.compute_ns + bubble.cool_down.compute_ns;
  return bubble;
}

RankTimes times_of(const LaneSets& sets, const Lane& lane, std::int64_t window_ns) {
  RankTimes t{.rank = lane.rank, .ranks = lane.ranks, .stage = lane.stage};
  t.compute_ns = length_ns(sets.compute);
  for (int pass = 0; pass < kPasses; ++pass) t.pass_ns[pass] = length_ns(sets.pass[pass]);
  t.optimizer_ns = t.pass_ns[static_cast<int>(Pass::optimizer)];
  t.comm_ns = length_ns(sets.all_comm);
  t.overlapped_ns = length_ns(intersect(sets.all_comm, sets.compute));
  t.memory_ns = length_ns(sets.memory);
  t.overlapped_memory_ns = length_ns(intersect(sets.memory, sets.compute));
  t.exposed_memory_ns = length_ns(sets.exposed_memory);
  t.busy_ns = length_ns(sets.busy);
  t.busy_effective_ns = length_ns(sets.effective);
  t.idle_ns = window_ns - t.busy_ns;
  for (std::size_t axis = 0; axis < sets.comm.size(); ++axis) {
    t.axes.push_back(
        {.comm_ns = length_ns(sets.comm[axis]),
         .overlapped_ns = length_ns(intersect(sets.comm[axis], sets.compute)),
         .exposed_transfer_ns = length_ns(sets.exposed_transfer[axis]),
         .exposed_wait_ns = length_ns(sets.exposed_wait[axis]),
         .overlapped_transfer_ns = length_ns(intersect(sets.transfer[axis], sets.compute))});
    t.exposed_comm_ns += t.axes.back().exposed_ns();
  }
  // The two ways to the exposed time, part by part and as a whole, must meet.
  require(t.exposed_comm_ns == t.comm_ns - t.overlapped_ns &&
              t.compute_ns + t.exposed_comm_ns + t.exposed_memory_ns + t.idle_ns == window_ns,
          "rank ", lane.rank, ": the parts of its step do not add up to the window");
  return t;
}

// The window of the pipeline that a lane is part of; nullopt if a stage has no forward or backward.
std::optional<Span> pipeline_window(const Plan& plan, const Timeline& timeline, int rank,
                                    const std::vector<PassMarks>& marks) {
  Span window{kNever, -kNever};
  for (int member : plan.mesh.members(group_of(Axis::pp), rank)) {
    const PassMarks& m = marks[timeline.lane_of_rank[member]];
    if (!m.complete()) return std::nullopt;
    window.start_ns = std::min(window.start_ns, m.first_forward);
    window.end_ns = std::max(window.end_ns, m.last_backward);
  }
  return window;
}

}  // namespace

int StepTimes::world() const {
  return std::accumulate(ranks.begin(), ranks.end(), 0,
                         [](int sum, const RankTimes& t) { return sum + t.ranks; });
}

StepTimes step_times(const Plan& plan, const Timeline& timeline,
                     std::int64_t clock_uncertainty_ns) {
  const std::vector<Lane> lanes = lanes_of(plan, timeline);
  const CommAxes axes = comm_axes(plan);
  const Arrivals arrivals = last_arrivals(plan, timeline);
  StepTimes step{.window = timeline.window(), .axes = axes.names};

  std::vector<PassMarks> marks;
  for (std::size_t i = 0; i < lanes.size(); ++i)
    marks.push_back(marks_of(plan.programs[lanes[i].stage], timeline.lanes[i]));
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = lanes[i];
    const LaneSets sets = sets_of(spans_of(plan.programs[lane.stage], axes.of[lane.stage],
                                           static_cast<int>(axes.names.size()), timeline.lanes[i],
                                           arrivals[i], clock_uncertainty_ns));
    step.invalid_spans += sets.invalid_spans;
    RankTimes times = times_of(sets, lane, step.window_ns());
    if (const auto window = pipeline_window(plan, timeline, lane.rank, marks)) {
      times.bubble = bubble_of(sets, marks[i], *window);
      times.idle_in_pipeline_ns = length_ns(*window) - length_within_ns(sets.busy, *window);
    }
    step.ranks.push_back(std::move(times));
  }
  return step;
}

}  // namespace mb
