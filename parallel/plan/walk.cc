#include "parallel/plan/walk.h"

#include "parallel/plan/text.h"

namespace mb {
namespace {

// Members of a group meet on one stream, each stream with its own communicator.
int key_of(Group group, Stream stream) {
  const int groups = (group.part << kAxes | group.axes) * 2 + group.ends;
  return groups * kStreams + static_cast<int>(stream);
}

}  // namespace

std::string describe(const Plan& plan, int stage, InstructionId id) {
  const Instruction& instruction = plan.programs[stage].instructions[id];
  return cat("stage ", stage, " ", name_of(instruction.stream), " #", id, " (",
             action_text(plan, instruction), " ", label_text(plan, instruction.label), ")");
}

Walk::Walk(const Plan& plan, const Hosts& hosts)
    : plan_(plan), lanes_(plan.programs.size() * kStreams), spans_(plan.programs.size()) {
  for (int stage = 0; stage < static_cast<int>(plan.programs.size()); ++stage) {
    const Program& program = plan.programs[stage];
    spans_[stage].assign(program.instructions.size(), Span{0, -1});
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      lane(stage, static_cast<int>(program.instructions[id].stream)).list.push_back(id);
    }
    for (int stream = 0; stream < kStreams; ++stream) {
      if (!lane(stage, stream).list.empty()) ready_.emplace_back(stage, stream);
    }
  }
  if (!hosts.launch_ns) return;
  for (const Program& program : plan.programs) {
    Host host;
    std::int64_t until = 0;
    InstructionId waited_at = kNone;
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      const Instruction& instruction = program.instructions[id];
      const auto after = program.after(instruction);
      const bool waits = std::any_of(after.begin(), after.end(), [&](InstructionId before) {
        const Action& action = program.instructions[before].action;
        return std::holds_alternative<Collective>(action)
                   ? hosts.waits_for_collectives
                   : std::holds_alternative<Send>(action) || std::holds_alternative<Recv>(action);
      });
      host.until_ns.push_back(until += hosts.launch_ns(instruction));
      host.waited_at.push_back(waited_at);
      host.waits.push_back(waits);
      if (waits) waited_at = id;
    }
    host.start_ns.assign(program.instructions.size(), -1);
    hosts_.push_back(std::move(host));
  }
}

void Walk::end(const Party& party, std::int64_t end_ns) {
  spans_[party.stage][party.id].end_ns = end_ns;
  const int own = static_cast<int>(plan_.programs[party.stage].instructions[party.id].stream);
  for (int stream = 0; stream < kStreams; ++stream) {
    Lane& lane = this->lane(party.stage, stream);
    if (stream == own) {
      lane.free_ns = end_ns;
      ++lane.next;
      // Taken up again if it waited; the one that is advancing right now goes on in its own loop.
      if (lane.waits_for_peer) ready_.emplace_back(party.stage, stream);
      lane.waits_for_peer = false;
    } else if (lane.blocked_on == party.id) {
      lane.blocked_on = kNone;
      ready_.emplace_back(party.stage, stream);
    }
  }
}

bool Walk::meet(const Party& party, int from, int to, bool is_send, Party& other) {
  Pair& pair = pairs_[{from, to}];
  std::deque<Party>& others = is_send ? pair.recvs : pair.sends;
  if (others.empty()) {
    std::deque<Party>& own = is_send ? pair.sends : pair.recvs;
    own.push_back(party);
    return false;
  }
  other = others.front();
  others.pop_front();
  const auto instruction = [&](const Party& p) -> const Instruction& {
    return plan_.programs[p.stage].instructions[p.id];
  };
  const Label &mine = instruction(party).label, &theirs = instruction(other).label;
  const std::int64_t bytes = payload_bytes(plan_.programs[party.stage], instruction(party));
  const std::int64_t other_bytes = payload_bytes(plan_.programs[other.stage], instruction(other));
  const Action &send = instruction(is_send ? party : other).action,
               &recv = instruction(is_send ? other : party).action;
  if (mine.pass == theirs.pass && mine.micro_batch == theirs.micro_batch && bytes == other_bytes &&
      std::get<Send>(send).chunk == std::get<Recv>(recv).chunk)
    return true;
  throw Error(cat(describe(plan_, party.stage, party.id), " of ", bytes, " bytes meets ",
                  describe(plan_, other.stage, other.id), " of ", other_bytes,
                  " bytes: they are not the same message"));
}

const std::vector<Walk::Party>* Walk::gather(const Party& party, const Collective& collective) {
  const Instruction& mine = plan_.programs[party.stage].instructions[party.id];
  const int key = key_of(collective.group, mine.stream);
  const std::size_t order = met_[{key, party.stage}]++;
  std::vector<Meeting>& meetings = meetings_[key];
  if (meetings.size() <= order) meetings.resize(order + 1);
  Meeting& meeting = meetings[order];
  if (!meeting.parties.empty()) {
    const Party& first = meeting.parties.front();
    const Program& program = plan_.programs[first.stage];
    const Instruction& theirs = program.instructions[first.id];
    const auto& other = std::get<Collective>(theirs.action);
    const std::int64_t bytes = payload_bytes(plan_.programs[party.stage], mine),
                       other_bytes = payload_bytes(program, theirs);
    if (other.kind != collective.kind || other.op != collective.op || bytes != other_bytes) {
      throw Error(cat(describe(plan_, party.stage, party.id), " of ", bytes, " bytes meets ",
                      describe(plan_, first.stage, first.id), " of ", other_bytes,
                      " bytes: members of ", name_of(collective.group),
                      " disagree on the order of their collectives"));
    }
  }
  meeting.parties.push_back(party);
  const std::size_t wanted = collective.group.ends ? 2 : plan_.programs.size();
  return meeting.parties.size() == wanted ? &meeting.parties : nullptr;
}

void Walk::check_finished() const {
  std::string stuck;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.next >= lane.list.size()) continue;
    const int stage = static_cast<int>(i / kStreams);
    stuck += cat(stuck.empty() ? "" : "; ", describe(plan_, stage, lane.list[lane.next]));
    if (lane.blocked_on != kNone) stuck += cat(" after ", describe(plan_, stage, lane.blocked_on));
  }
  require(stuck.empty(), "the plan never ends, these wait for each other: ", stuck);
}

}  // namespace mb
