#include "parallel/plan/walk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "parallel/plan/text.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// A Program's instructions as the walk reads them.
struct Step {
  enum class Kind : std::uint8_t { local, collective, send, recv };
  std::uint32_t waits = 0;
  std::uint16_t wait_count = 0;
  std::uint8_t stream = 0;
  Kind kind = Kind::local;
  std::int32_t next = kNone;  // of its stream
  std::int32_t peer = 0;      // index of the group, or the other's stage
};
struct Tape {
  std::vector<Step> steps;
  std::array<InstructionId, kStreams> first;
  std::vector<InstructionId> host_waited_at;  // empty: there is no host
};

Tape tape_of(const Program& program, const RankClasses& classes, HostWaits host) {
  Tape tape;
  tape.first.fill(kNone);
  tape.steps.reserve(program.instructions.size());
  std::array<InstructionId, kStreams> last = tape.first;
  for (const Instruction& instruction : program.instructions) {
    const auto id = static_cast<InstructionId>(tape.steps.size());
    const auto stream = static_cast<int>(instruction.stream);
    Step step{.waits = instruction.after.begin,
              .wait_count = static_cast<std::uint16_t>(instruction.after.count),
              .stream = static_cast<std::uint8_t>(stream)};
    if (const auto* collective = std::get_if<Collective>(&instruction.action)) {
      step.kind = Step::Kind::collective;
      step.peer = classes.index_of(collective->group);
    } else if (const auto* send = std::get_if<Send>(&instruction.action)) {
      step.kind = Step::Kind::send;
      step.peer = send->to;
    } else if (const auto* recv = std::get_if<Recv>(&instruction.action)) {
      step.kind = Step::Kind::recv;
      step.peer = recv->from;
    }
    (last[stream] == kNone ? tape.first[stream] : tape.steps[last[stream]].next) = id;
    last[stream] = id;
    tape.steps.push_back(step);
  }
  if (host != HostWaits::never) tape.host_waited_at = host_waited_at(program, host);
  return tape;
}

class Walk {
 public:
  Walk(const Plan& plan, const RankClasses& classes, HostWaits host)
      : plan_(plan), classes_(classes) {
    std::size_t instructions = 0;
    for (const Program& program : plan.programs) tapes_.push_back(tape_of(program, classes, host));
    for (int c = 0; c < classes.count(); ++c) {
      const Tape& tape = tapes_[classes.at(c).stage];
      State& state = states_.emplace_back();
      state.progress.resize(tape.steps.size(), Progress::ahead);
      state.next = tape.first;
      state.blocked_on.fill(kNone);
      instructions += tape.steps.size();
    }
    order_.events.reserve(instructions + instructions / 8);
  }

  WalkOrder run() {
    for (int c = 0; c < classes_.count(); ++c) {
      for (int stream = 0; stream < kStreams; ++stream) ready_.emplace_back(c, stream);
      while (!ready_.empty()) {
        const auto [of, stream] = ready_.back();
        ready_.pop_back();
        advance(of, stream);
      }
    }
    check_finished();
    return std::move(order_);
  }

 private:
  enum class Progress : std::uint8_t { ahead, started, ended };
  struct State {  // of a class
    std::vector<Progress> progress;
    std::array<InstructionId, kStreams> next;        // by stream
    std::array<InstructionId, kStreams> blocked_on;  // until that has ended, or started
    unsigned blocked = 0, waits_for_peer = 0;        // streams
  };

  void advance(int of, int stream) {
    const Tape& tape = tapes_[classes_.at(of).stage];
    const std::vector<InstructionId>& waits = plan_.programs[classes_.at(of).stage].waits;
    State& state = states_[of];
    while (state.next[stream] != kNone && (state.waits_for_peer >> stream & 1) == 0) {
      const InstructionId id = state.next[stream];
      const Step& step = tape.steps[id];
      for (std::uint32_t w = step.waits; w < step.waits + step.wait_count; ++w) {
        if (state.progress[waits[w]] != Progress::ended) return block(state, stream, waits[w]);
      }
      if (!tape.host_waited_at.empty()) {
        const InstructionId at = tape.host_waited_at[id];
        if (at != kNone && state.progress[at] == Progress::ahead) return block(state, stream, at);
      }
      const ClassGroup* group =
          step.kind == Step::Kind::collective ? &classes_.at(of).groups[step.peer] : nullptr;
      if (step.kind == Step::Kind::local || (group && group->shares.size() < 2)) {
        order_.events.push_back({WalkEvent::Kind::run, of, id});
        state.next[stream] = step.next;
        // What it let go on comes first, so that events are nearly in the order of lists.
        const std::size_t waiting = ready_.size();
        ready_.emplace_back(of, stream);
        pass(of, stream, id, Progress::ended);
        if (ready_.size() > waiting + 1) return;
        ready_.pop_back();
        continue;
      }
      order_.events.push_back({WalkEvent::Kind::arrive, of, id});
      state.waits_for_peer |= 1u << stream;
      pass(of, stream, id, Progress::started);
      if (group) {
        gather({of, id}, step, *group);
      } else {
        meet({of, id}, step);
      }
    }
  }

  void block(State& state, int stream, InstructionId on) {
    state.blocked |= 1u << stream;
    state.blocked_on[stream] = on;
  }

  // Streams that waited for it go on.
  void pass(int of, int stream, InstructionId id, Progress progress) {
    State& state = states_[of];
    state.progress[id] = progress;
    for (unsigned left = state.blocked & ~(1u << stream); left != 0; left &= left - 1) {
      const int other = std::countr_zero(left);
      if (state.blocked_on[other] != id) continue;
      state.blocked &= ~(1u << other);
      ready_.emplace_back(of, other);
    }
  }

  void end(std::span<const Party> parties) {
    const auto meeting = static_cast<std::int32_t>(order_.ends_of_meeting.size());
    order_.events.push_back({WalkEvent::Kind::meet, 0, meeting});
    order_.parties.insert(order_.parties.end(), parties.begin(), parties.end());
    order_.ends_of_meeting.push_back(static_cast<std::uint32_t>(order_.parties.size()));
    for (const Party& party : parties) {
      const Step& step = tapes_[classes_.at(party.of).stage].steps[party.id];
      State& state = states_[party.of];
      state.next[step.stream] = step.next;
      state.waits_for_peer &= ~(1u << step.stream);
      pass(party.of, step.stream, party.id, Progress::ended);
      ready_.emplace_back(party.of, step.stream);
    }
  }

  int stage(const Party& party) const { return classes_.at(party.of).stage; }
  const Instruction& instruction(const Party& party) const {
    return plan_.programs[stage(party)].instructions[party.id];
  }
  std::int64_t bytes(const Party& party) const {
    return payload_bytes(plan_.programs[stage(party)], instruction(party));
  }

  // A send or receive: ends with the other side, if that has arrived.
  void meet(const Party& party, const Step& step) {
    const bool is_send = step.kind == Step::Kind::send;
    const int peer = classes_.at(party.of).peers[step.peer];
    const int from = is_send ? party.of : peer, to = is_send ? peer : party.of;
    Pair& pair = pairs_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
    std::vector<Party>& others = is_send ? pair.recvs : pair.sends;
    if (others.empty()) {
      (is_send ? pair.sends : pair.recvs).push_back(party);
      return;
    }
    const std::array<Party, 2> both = {party, others.front()};
    others.erase(others.begin());
    check_message(both[0], both[1]);
    end(both);
  }

  void check_message(const Party& party, const Party& other) const {
    const auto chunk = [](const Action& action) {
      const auto* send = std::get_if<Send>(&action);
      return send ? send->chunk : std::get<Recv>(action).chunk;
    };
    const Instruction &mine = instruction(party), &theirs = instruction(other);
    if (mine.label.pass == theirs.label.pass &&
        mine.label.micro_batch == theirs.label.micro_batch && bytes(party) == bytes(other) &&
        chunk(mine.action) == chunk(theirs.action))
      return;
    throw Error(cat(describe(plan_, stage(party), party.id), " of ", bytes(party), " bytes meets ",
                    describe(plan_, stage(other), other.id), " of ", bytes(other),
                    " bytes: they are not the same message"));
  }

  // A collective over classes: ends once the last has arrived. Members of a group meet on one
  // stream, each stream with its own communicator.
  void gather(const Party& party, const Step& step, const ClassGroup& group) {
    const auto classes = static_cast<std::uint64_t>(classes_.count());
    const std::uint64_t key =
        (static_cast<std::uint64_t>(step.peer) * kStreams + step.stream) * classes +
        group.shares.front().of;
    std::vector<Party>& parties = gathering_[key];
    if (!parties.empty()) check_collective(parties.front(), party);
    parties.push_back(party);
    if (parties.size() < group.shares.size()) return;
    end(std::exchange(parties, {}));
  }

  void check_collective(const Party& first, const Party& party) const {
    const auto& mine = std::get<Collective>(instruction(party).action);
    const auto& theirs = std::get<Collective>(instruction(first).action);
    if (theirs.kind == mine.kind && theirs.op == mine.op && bytes(first) == bytes(party)) return;
    throw Error(cat(describe(plan_, stage(party), party.id), " of ", bytes(party), " bytes meets ",
                    describe(plan_, stage(first), first.id), " of ", bytes(first),
                    " bytes: members of ", name_of(mine.group),
                    " disagree on the order of their collectives"));
  }

  void check_finished() const {
    std::string stuck;
    for (int c = 0; c < classes_.count(); ++c) {
      const int stage = classes_.at(c).stage;
      for (int stream = 0; stream < kStreams; ++stream) {
        const State& state = states_[c];
        if (state.next[stream] == kNone) continue;
        stuck += cat(stuck.empty() ? "" : "; ", describe(plan_, stage, state.next[stream]));
        if ((state.blocked >> stream & 1) != 0)
          stuck += cat(" after ", describe(plan_, stage, state.blocked_on[stream]));
      }
    }
    require(stuck.empty(), "the plan never ends, these wait for each other: ", stuck);
  }

  struct Pair {
    std::vector<Party> sends, recvs;
  };

  const Plan& plan_;
  const RankClasses& classes_;
  std::vector<Tape> tapes_;    // by stage
  std::vector<State> states_;  // by class
  std::vector<std::pair<int, int>> ready_;
  std::unordered_map<std::uint64_t, Pair> pairs_;  // by classes that send and receive
  std::unordered_map<std::uint64_t, std::vector<Party>> gathering_;
  WalkOrder order_;
};

}  // namespace

std::string describe(const Plan& plan, int stage, InstructionId id) {
  const Instruction& instruction = plan.programs[stage].instructions[id];
  return cat("stage ", stage, " ", name_of(instruction.stream), " #", id, " (",
             action_text(plan, instruction), " ", label_text(plan, instruction.label), ")");
}

std::vector<InstructionId> host_waited_at(const Program& program, HostWaits waits) {
  std::vector<InstructionId> waited_at;
  waited_at.reserve(program.instructions.size());
  InstructionId last = kNone;
  for (const Instruction& instruction : program.instructions) {
    waited_at.push_back(last);
    const auto after = program.after(instruction);
    const bool waiting = std::any_of(after.begin(), after.end(), [&](InstructionId before) {
      const Action& action = program.instructions[before].action;
      return std::holds_alternative<Collective>(action)
                 ? waits == HostWaits::messages_and_collectives
                 : std::holds_alternative<Send>(action) || std::holds_alternative<Recv>(action);
    });
    if (waiting) last = static_cast<InstructionId>(waited_at.size()) - 1;
  }
  return waited_at;
}

WalkOrder walk(const Plan& plan, const RankClasses& classes, HostWaits host) {
  return Walk(plan, classes, host).run();
}

}  // namespace mb
