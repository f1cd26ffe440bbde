#include "parallel/exec/fluid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>

namespace mb {
namespace {

class Fluid {
 public:
  Fluid(const Plan& plan, const RankClasses& classes, const StepCosts& costs)
      : costs_(costs), order_(walk(plan, classes, costs.host_waits)) {
    timeline_.lane_of_rank = classes.of_rank();
    timeline_.lanes.resize(classes.count());
    for (int c = 0; c < classes.count(); ++c) {
      Lane& lane = lanes_.emplace_back();
      lane.stage = classes.at(c).stage;
      lane.program = &plan.programs[lane.stage];
      lane.durations = durations_of(plan, classes, c, costs);
      if (!costs.launched_ns.empty())
        lane.waited_at = host_waited_at(*lane.program, costs.host_waits);
      const std::size_t count = lane.program->instructions.size();
      timeline_.lanes[c].assign(count, Span{kNever, kNever});
      lane.meeting.assign(count, kNone);
      for (InstructionId id = 0; id < static_cast<InstructionId>(count); ++id)
        lane.lists[static_cast<int>(lane.program->instructions[id].stream)].push_back(id);
    }
    // Who meets whom is as in the walk.
    for (std::size_t m = 0; m < order_.ends_of_meeting.size(); ++m) {
      const auto parties = order_.parties_of(static_cast<int>(m));
      for (const Party& party : parties)
        lanes_[party.of].meeting[party.id] = static_cast<std::int32_t>(m);
      missing_.push_back(static_cast<int>(parties.size()));
    }
  }

  Timeline run() {
    for (int c = 0; c < static_cast<int>(lanes_.size()); ++c) start_all(c, 0);
    while (!events_.empty()) {
      const auto [at, number, version] = events_.top();
      events_.pop();
      if (number < 0) {  // what has been launched or handed over by now
        start_all(~number, at);
      } else if (tasks_[number].version == version) {
        end(number, at);
      }
    }
    return std::move(timeline_);
  }

 private:
  static constexpr std::int64_t kNever = -1;
  struct Lane {  // a class
    int stage = 0;
    const Program* program = nullptr;
    std::vector<std::int64_t> durations;
    std::vector<InstructionId> waited_at;
    std::vector<std::int32_t> meeting;
    std::array<std::vector<InstructionId>, kStreams> lists;
    std::array<std::size_t, kStreams> next{};
    std::array<std::int64_t, kStreams> start_ns{};               // that is waited for
    std::array<bool, kStreams> busy{};                           // one has started, and not ended
    std::array<std::int32_t, kStreams> running = all_of(kNone);  // tasks on their way
    static std::array<std::int32_t, kStreams> all_of(std::int32_t value) {
      std::array<std::int32_t, kStreams> all;
      all.fill(value);
      return all;
    }
  };
  // What is on its way, of one class or of several that have met.
  struct Task {
    std::vector<Party> parties;
    double left_ns = 0, rate = 1;  // of work, and how much of it in a nanosecond
    std::int64_t since_ns = 0;
    int version = 0;  // of its end
  };
  using EndEvent = std::tuple<std::int64_t, std::int32_t, int>;  // when, task, version

  const Instruction& instruction(const Party& party) const {
    return lanes_[party.of].program->instructions[party.id];
  }
  const Interference& interference(const Party& party) const {
    return costs_.interference[lanes_[party.of].stage][party.id];
  }
  bool is_compute(std::int32_t task) const {
    return task != kNone &&
           std::holds_alternative<Compute>(instruction(tasks_[task].parties[0]).action);
  }
  bool is_collective(std::int32_t task) const {
    return task != kNone &&
           std::holds_alternative<Collective>(instruction(tasks_[task].parties[0]).action);
  }

  void start_all(int c, std::int64_t now) {
    for (int stream = 0; stream < kStreams; ++stream) start(c, stream, now);
  }

  void start(int c, int stream, std::int64_t now) {
    Lane& lane = lanes_[c];
    if (lane.busy[stream] || lane.next[stream] == lane.lists[stream].size()) return;
    std::vector<Span>& spans = timeline_.lanes[c];
    const InstructionId id = lane.lists[stream][lane.next[stream]];
    std::int64_t when = now;
    if (lane.next[stream] > 0) {
      const InstructionId previous = lane.lists[stream][lane.next[stream] - 1];
      when = std::max(when, spans[previous].end_ns + costs_.gap_ns);
    }
    for (const InstructionId before : lane.program->after(lane.program->instructions[id])) {
      if (spans[before].end_ns == kNever) return;
      when = std::max(when, spans[before].end_ns + costs_.handoff_ns);
    }
    if (!lane.waited_at.empty()) {
      const auto& launched = costs_.launched_ns[lane.stage];
      const InstructionId at = lane.waited_at[id];
      if (at != kNone && spans[at].start_ns == kNever) return;
      when = std::max(when, launched[id] + (at == kNone ? 0 : spans[at].start_ns - launched[at]));
    }
    if (when > now) {
      if (std::exchange(lane.start_ns[stream], when) != when) events_.push({when, ~c, 0});
      return;
    }
    lane.busy[stream] = true;
    spans[id].start_ns = now;
    const std::int32_t meeting = lane.meeting[id];
    if (meeting == kNone) {
      set_off({Party{c, id}}, lane.durations[id], now);
    } else if (--missing_[meeting] == 0) {
      const auto parties = order_.parties_of(meeting);
      std::int64_t duration = 0;
      for (const Party& party : parties)
        duration = std::max(duration, lanes_[party.of].durations[party.id]);
      set_off({parties.begin(), parties.end()}, duration, now);
    }
    if (!lane.waited_at.empty()) start_all(c, now);  // what the host may launch from now on
  }

  void set_off(std::vector<Party> parties, std::int64_t duration_ns, std::int64_t now) {
    const auto number = static_cast<std::int32_t>(tasks_.size());
    tasks_.push_back({std::move(parties), static_cast<double>(duration_ns), 0, now});
    for (const Party& party : tasks_[number].parties)
      lanes_[party.of].running[static_cast<int>(instruction(party).stream)] = number;
    set_rate(number, now);
    set_rates_beside(number, now);
  }

  void end(std::int32_t number, std::int64_t now) {
    const std::vector<Party> parties = std::move(tasks_[number].parties);
    tasks_[number].version = kNone;
    for (const Party& party : parties) {
      Lane& lane = lanes_[party.of];
      const int stream = static_cast<int>(instruction(party).stream);
      timeline_.lanes[party.of][party.id].end_ns = now;
      lane.busy[stream] = false;
      lane.running[stream] = kNone;
      ++lane.next[stream];
    }
    for (const Party& party : parties) set_rates_of(party.of, now);
    for (const Party& party : parties) start_all(party.of, now);
  }

  void set_rates_beside(std::int32_t number, std::int64_t now) {
    const std::vector<Party> parties = tasks_[number].parties;
    for (const Party& party : parties) set_rates_of(party.of, now);
  }
  void set_rates_of(int c, std::int64_t now) {
    for (const std::int32_t task : lanes_[c].running) {
      if (task != kNone) set_rate(task, now);
    }
  }

  double rate_of(std::int32_t number) const {
    const Task& task = tasks_[number];
    if (is_compute(number)) {
      double sms = 0, memory = 0;
      for (const std::int32_t other : lanes_[task.parties[0].of].running) {
        if (!is_collective(other)) continue;
        sms += interference(tasks_[other].parties[0]).sms;
        memory += interference(tasks_[other].parties[0]).memory;
      }
      return 1 - std::min(0.9, interference(task.parties[0]).memory_bound ? memory : sms);
    }
    double rate = 1;
    if (is_collective(number)) {
      const bool computes =
          std::any_of(task.parties.begin(), task.parties.end(), [&](const Party& party) {
            return is_compute(lanes_[party.of].running[static_cast<int>(Stream::compute)]);
          });
      if (computes) rate = 1 / (1 + costs_.comm_slowed_by);
    }
    // All on a NIC progress alike until it is full; who meets others has what the fullest leaves.
    for (const Party& party : task.parties) {
      if (interference(party).nic == 0) continue;
      double nic = 0;
      for (const std::int32_t other : lanes_[party.of].running) {
        if (other == kNone) continue;
        for (const Party& of : tasks_[other].parties)
          if (of.of == party.of) nic += interference(of).nic;
      }
      rate = std::min(rate, 1 / std::max(1.0, nic));
    }
    return rate;
  }

  void set_rate(std::int32_t number, std::int64_t now) {
    const double rate = rate_of(number);
    Task& task = tasks_[number];
    if (rate == task.rate) return;
    task.left_ns =
        std::max(0.0, task.left_ns - static_cast<double>(now - task.since_ns) * task.rate);
    task.rate = rate;
    task.since_ns = now;
    // Less than a millionth of a nanosecond is what roundings have left.
    const auto left = static_cast<std::int64_t>(std::ceil(task.left_ns / rate - 1e-6));
    events_.push({now + std::max<std::int64_t>(0, left), number, ++task.version});
  }

  const StepCosts& costs_;
  WalkOrder order_;
  Timeline timeline_;
  std::vector<Lane> lanes_;
  std::vector<int> missing_;  // parties of each meeting that have not arrived
  std::vector<Task> tasks_;
  std::priority_queue<EndEvent, std::vector<EndEvent>, std::greater<>> events_;
};

}  // namespace

Timeline fluid_timeline(const Plan& plan, const RankClasses& classes, const StepCosts& costs) {
  return Fluid(plan, classes, costs).run();
}

}  // namespace mb
