#include "bench/analysis/matching.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "workloads/base/error.h"

namespace mb {
namespace {

// What a collective is matched by.
using CallKey = std::tuple<Group, Stream, CollectiveKind>;
using Calls = std::vector<InstructionId>;

struct StageCalls {
  std::map<CallKey, Calls> collectives;
  std::map<int, Calls> sends, receives;  // by the peer's stage
};

StageCalls calls_of(const Program& program) {
  StageCalls calls;
  for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
    const Instruction& i = program.instructions[id];
    if (const auto* c = std::get_if<Collective>(&i.action))
      calls.collectives[{c->group, i.stream, c->kind}].push_back(id);
    else if (const auto* send = std::get_if<Send>(&i.action))
      calls.sends[send->to].push_back(id);
    else if (const auto* recv = std::get_if<Recv>(&i.action))
      calls.receives[recv->from].push_back(id);
  }
  return calls;
}

class Matcher {
 public:
  Matcher(const Plan& plan, const Timeline& timeline)
      : plan_(plan), timeline_(timeline), lanes_(lanes_of(plan, timeline)) {
    for (const Program& program : plan.programs) calls_.push_back(calls_of(program));
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
      std::vector<Participant>& last = last_.emplace_back(timeline.lanes[lane].size());
      for (std::size_t id = 0; id < last.size(); ++id)
        last[id] = {lane, static_cast<InstructionId>(id)};
    }
  }

  void run() {
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
      const StageCalls& calls = calls_[lanes_[lane].stage];
      for (const auto& [key, ids] : calls.collectives) meet(lane, key, ids);
      for (const auto& [stage, ids] : calls.sends)
        meet(lane, ids, stage, &StageCalls::receives, "sends to");
      for (const auto& [stage, ids] : calls.receives)
        meet(lane, ids, stage, &StageCalls::sends, "receives from");
    }
  }

  LastParticipants take_last() { return std::move(last_); }
  std::vector<Message> take_messages() { return std::move(messages_); }

 private:
  void meet(int lane, const CallKey& key, const Calls& ids) {
    const Group group = std::get<Group>(key);
    const std::vector<int> lanes = lanes_of_group(plan_, timeline_, group, lanes_[lane].rank);
    if (lanes.size() < 2 || !done_.insert({key, lanes}).second) return;
    std::vector<const Calls*> calls;
    for (int other : lanes) {
      const auto& theirs = calls_[lanes_[other].stage].collectives;
      const auto found = theirs.find(key);
      const std::size_t count = found == theirs.end() ? 0 : found->second.size();
      require(count == ids.size(), "group ", name_of(group), ": rank ", lanes_[lane].rank,
              " makes ", ids.size(), " calls on stream ", name_of(std::get<Stream>(key)), ", rank ",
              lanes_[other].rank, " makes ", count);
      calls.push_back(&found->second);
    }
    for (std::size_t k = 0; k < ids.size(); ++k) {
      Participant last{lanes[0], (*calls[0])[k]};
      for (std::size_t j = 1; j < lanes.size(); ++j) last = later(last, {lanes[j], (*calls[j])[k]});
      for (std::size_t j = 0; j < lanes.size(); ++j) last_[lanes[j]][(*calls[j])[k]] = last;
    }
  }

  // Sends or receives of `lane` and their counterparts at the peer stage.
  void meet(int lane, const Calls& ids, int peer_stage, std::map<int, Calls> StageCalls::*side,
            const char* verb) {
    const Lane& mine = lanes_[lane];
    Coordinates place = plan_.mesh.coordinates(mine.rank);
    place[static_cast<int>(Axis::pp)] = peer_stage;
    const int peer = plan_.mesh.rank_of(place), peer_lane = timeline_.lane_of_rank[peer];
    const std::map<int, Calls>& theirs = calls_[peer_stage].*side;
    const auto found = theirs.find(mine.stage);
    const std::size_t count = found == theirs.end() ? 0 : found->second.size();
    require(count == ids.size(), "rank ", mine.rank, ": ", ids.size(), " ", verb, " rank ", peer,
            ", which has ", count, " to match");
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const InstructionId other = found->second[k];
      last_[lane][ids[k]] = later({lane, ids[k]}, {peer_lane, other});
      if (side == &StageCalls::sends) messages_.push_back({peer_lane, lane, other, ids[k]});
    }
  }

  // The one that came later; the first of two that came at once.
  Participant later(Participant a, Participant b) const {
    return timeline_.lanes[b.lane][b.id].start_ns > timeline_.lanes[a.lane][a.id].start_ns ? b : a;
  }

  const Plan& plan_;
  const Timeline& timeline_;
  std::vector<Lane> lanes_;
  std::vector<StageCalls> calls_;
  std::set<std::pair<CallKey, std::vector<int>>> done_;
  LastParticipants last_;
  std::vector<Message> messages_;
};

}  // namespace

std::vector<Lane> lanes_of(const Plan& plan, const Timeline& timeline) {
  const int world = plan.mesh.world();
  require(static_cast<int>(timeline.lane_of_rank.size()) == world, "the timeline has ",
          timeline.lane_of_rank.size(), " ranks, the plan ", world);
  std::vector<Lane> lanes(timeline.lanes.size());
  for (int rank = 0; rank < world; ++rank) {
    Lane& lane = lanes.at(timeline.lane_of_rank[rank]);
    if (lane.ranks++ == 0) lane.rank = rank, lane.stage = plan.mesh.coordinate(rank, Axis::pp);
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    require(lanes[i].ranks > 0, "lane ", i, " of the timeline belongs to no rank");
    const std::size_t wanted = plan.programs[lanes[i].stage].instructions.size();
    require(timeline.lanes[i].size() == wanted, "rank ", lanes[i].rank, ": the timeline has ",
            timeline.lanes[i].size(), " instructions, the plan ", wanted);
  }
  return lanes;
}

std::vector<int> lanes_of_group(const Plan& plan, const Timeline& timeline, Group group, int rank) {
  std::vector<int> lanes;
  for (int member : plan.mesh.members(group, rank)) lanes.push_back(timeline.lane_of_rank[member]);
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

std::string axis_name(const Instruction& instruction) {
  if (const auto* collective = std::get_if<Collective>(&instruction.action))
    return name_of(collective->group);
  const bool point_to_point = std::holds_alternative<Send>(instruction.action) ||
                              std::holds_alternative<Recv>(instruction.action);
  return point_to_point ? "pp" : "";
}

CommAxes comm_axes(const Plan& plan) {
  const std::vector<std::string> order = {"tp", "cp",  "ep",        "pp",
                                          "dp", "rdp", "embedding", "world"};
  const auto place = [&](const std::string& name) {
    return std::pair(std::find(order.begin(), order.end(), name) - order.begin(), name);
  };
  std::map<std::optional<Group>, std::string> names;  // without a group: sends and receives
  const auto key_of = [](const Instruction& i) {
    const auto* c = std::get_if<Collective>(&i.action);
    return c ? std::optional(c->group) : std::nullopt;
  };
  for (const Program& program : plan.programs)
    for (const Instruction& i : program.instructions)
      if (!std::holds_alternative<Compute>(i.action) && !std::holds_alternative<Copy>(i.action) &&
          !names.contains(key_of(i)))
        names[key_of(i)] = axis_name(i);

  CommAxes axes;
  for (const auto& [key, name] : names) axes.names.push_back(name);
  std::sort(axes.names.begin(), axes.names.end(),
            [&](const auto& a, const auto& b) { return place(a) < place(b); });
  axes.names.erase(std::unique(axes.names.begin(), axes.names.end()), axes.names.end());
  std::map<std::optional<Group>, std::int8_t> index;
  for (const auto& [key, name] : names)
    index[key] = static_cast<std::int8_t>(std::find(axes.names.begin(), axes.names.end(), name) -
                                          axes.names.begin());
  for (const Program& program : plan.programs) {
    std::vector<std::int8_t>& of = axes.of.emplace_back();
    of.reserve(program.instructions.size());
    for (const Instruction& i : program.instructions) {
      const bool local =
          std::holds_alternative<Compute>(i.action) || std::holds_alternative<Copy>(i.action);
      of.push_back(local ? std::int8_t{-1} : index.at(key_of(i)));
    }
  }
  return axes;
}

LastParticipants last_participants(const Plan& plan, const Timeline& timeline) {
  Matcher matcher(plan, timeline);
  matcher.run();
  return matcher.take_last();
}

Arrivals last_arrivals(const Plan& plan, const Timeline& timeline) {
  Arrivals arrivals;
  for (const std::vector<Participant>& last : last_participants(plan, timeline)) {
    std::vector<std::int64_t>& starts = arrivals.emplace_back();
    starts.reserve(last.size());
    for (const Participant& p : last) starts.push_back(timeline.lanes[p.lane][p.id].start_ns);
  }
  return arrivals;
}

std::vector<Message> messages(const Plan& plan, const Timeline& timeline) {
  Matcher matcher(plan, timeline);
  matcher.run();
  return matcher.take_messages();
}

WaitTransfer split_at(Span span, std::int64_t arrival_ns, std::int64_t uncertainty_ns) {
  if (span.end_ns < arrival_ns - uncertainty_ns) return {{span.start_ns, span.start_ns}, span};
  const std::int64_t at =
      std::clamp(arrival_ns, span.start_ns, std::max(span.start_ns, span.end_ns));
  return {{span.start_ns, at}, {at, span.end_ns}};
}

}  // namespace mb
