// Walks all Programs of a Plan together, as ranks would: streams in list order, `after` respected,
// sends meeting receives and collectives each other, sends with no buffer to go to (rendezvous).
// Virtual time and the check for deadlock are this walk with different durations.
//
// Ranks that share a Program are one: members of a group that does not span the pipeline arrive
// together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"
#include "workloads/base/error.h"

namespace mb {

// One instruction as errors name it: "stage 1 pp_send #45 send F3 to stage 2".
std::string describe(const Plan& plan, int stage, InstructionId id);

// The host of every stage launches instructions in list order; none starts before it is launched.
// The host waits, until the instruction at hand may start, where that follows a message, or with
// `waits_for_collectives` a collective: it has to know that what was sent is there.
struct Hosts {
  std::function<std::int64_t(const Instruction&)> launch_ns;  // what it takes to launch one
  bool waits_for_collectives = false;
};

class Walk {
 public:
  // Without `launch_ns` hosts take no time.
  explicit Walk(const Plan& plan, const Hosts& hosts = {});

  // duration(stage, id): nanoseconds of a compute or copy, or of a transfer once the last
  // participant has arrived (asked for its latest arrival). Returns the spans of each Program.
  // Throws Error naming where every stage stands if they wait for each other, and naming both
  // instructions if two that meet do not fit.
  template <class Duration>
  std::vector<std::vector<Span>> run(Duration&& duration) {
    while (!ready_.empty()) {
      const auto [stage, stream] = ready_.front();
      ready_.pop_front();
      advance(stage, stream, duration);
    }
    check_finished();
    return std::move(spans_);
  }

 private:
  struct Lane {  // one stream of one Program
    std::vector<InstructionId> list;
    std::size_t next = 0;
    std::int64_t free_ns = 0;
    InstructionId blocked_on = kNone;
    bool waits_for_peer = false;
  };
  // When a stage's instructions are launched.
  struct Host {
    std::vector<std::int64_t> until_ns;    // launch times up to and with each, from the first
    std::vector<InstructionId> waited_at;  // the last before it, itself left out, that made the
                                           // host wait; kNone: none did
    std::vector<bool> waits;
    std::vector<std::int64_t> start_ns;  // of those that make it wait, once started; else -1
    std::optional<std::int64_t> launched_ns(InstructionId id, InstructionId& blocked_on) const {
      const InstructionId from = waited_at[id];
      if (from == kNone) return until_ns[id];
      if (start_ns[from] < 0) {
        blocked_on = from;
        return std::nullopt;
      }
      return start_ns[from] + until_ns[id] - until_ns[from];
    }
    void started(InstructionId id, std::int64_t at_ns) {
      if (waits[id]) start_ns[id] = at_ns;
    }
  };
  struct Party {
    int stage;
    InstructionId id;
    std::int64_t arrival_ns;
  };
  struct Meeting {  // a collective over stages, parties in the order of their arrival
    std::vector<Party> parties;
  };

  Lane& lane(int stage, int stream) { return lanes_[stage * kStreams + stream]; }
  bool ended(int stage, InstructionId id) const { return spans_[stage][id].end_ns >= 0; }
  void end(const Party& party, std::int64_t end_ns);
  // The other side of a send or receive, if it has arrived; else remembers this one. Checks that
  // they fit.
  bool meet(const Party& party, int from, int to, bool is_send, Party& other);
  // All parties of a collective over stages, once the last has arrived.
  const std::vector<Party>* gather(const Party& party, const Collective& collective);
  void check_finished() const;

  template <class Duration>
  void advance(int stage, int stream, Duration& duration) {
    const Program& program = plan_.programs[stage];
    Lane& lane = this->lane(stage, stream);
    if (lane.waits_for_peer) return;
    while (lane.next < lane.list.size()) {
      const InstructionId id = lane.list[lane.next];
      const Instruction& instruction = program.instructions[id];
      std::int64_t start = lane.free_ns;
      for (InstructionId before : program.after(instruction)) {
        if (!ended(stage, before)) {
          lane.blocked_on = before;
          return;
        }
        start = std::max(start, spans_[stage][before].end_ns);
      }
      if (!hosts_.empty()) {
        const std::optional<std::int64_t> launched = hosts_[stage].launched_ns(id, lane.blocked_on);
        if (!launched) return;
        start = std::max(start, *launched);
        hosts_[stage].started(id, start);
      }
      lane.blocked_on = kNone;
      spans_[stage][id].start_ns = start;
      const Party self{stage, id, start};
      const auto* send = std::get_if<Send>(&instruction.action);
      const auto* recv = std::get_if<Recv>(&instruction.action);
      const auto* collective = std::get_if<Collective>(&instruction.action);
      if (send || recv) {
        Party other;
        if (!meet(self, send ? stage : recv->from, send ? send->to : stage, send != nullptr,
                  other)) {
          lane.waits_for_peer = true;
          return;
        }
        const bool last = other.arrival_ns <= start;
        const std::int64_t finish = std::max(start, other.arrival_ns) +
                                    duration(last ? stage : other.stage, last ? id : other.id);
        end(other, finish);
        end(self, finish);
      } else if (collective && spans_stages(*collective)) {
        const std::vector<Party>* parties = gather(self, *collective);
        if (!parties) {
          lane.waits_for_peer = true;
          return;
        }
        std::int64_t arrival = 0;
        for (const Party& party : *parties) arrival = std::max(arrival, party.arrival_ns);
        const std::int64_t finish = arrival + duration(stage, id);
        const std::vector<Party> all = *parties;
        for (const Party& party : all) end(party, finish);
      } else {
        end(self, start + duration(stage, id));
      }
    }
  }

  bool spans_stages(const Collective& collective) const {
    return (collective.group.axes & group_of(Axis::pp).axes) != 0 && plan_.programs.size() > 1;
  }

  const Plan& plan_;
  std::vector<Host> hosts_;  // by stage; empty: they take no time
  std::vector<Lane> lanes_;
  std::vector<std::vector<Span>> spans_;
  std::deque<std::pair<int, int>> ready_;
  struct Pair {
    std::deque<Party> sends, recvs;
  };
  std::map<std::pair<int, int>, Pair> pairs_;     // (from, to)
  std::map<int, std::vector<Meeting>> meetings_;  // by group and stream, in order
  std::map<std::pair<int, int>, std::size_t>
      met_;  // (group and stream, stage): how many it has joined
};

}  // namespace mb
