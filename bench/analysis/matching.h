// Which instructions of different ranks are one communication, and when its last participant
// arrived.
//
// A collective meets those of the same group, stream and kind by their order in the list; the k-th
// send from one rank to another meets the k-th receive there. Work is per lane: ranks that share
// one arrive together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// A timeline's lanes seen as ranks: the first one on each, how many share it, its stage.
struct Lane {
  int rank = 0, ranks = 0, stage = 0;
};
std::vector<Lane> lanes_of(const Plan& plan, const Timeline& timeline);

// The lanes of the members of a rank's group, each once, ascending.
std::vector<int> lanes_of_group(const Plan& plan, const Timeline& timeline, Group group, int rank);

// Every axis that a plan communicates over: the name of the collective's group, "pp" for sends and
// receives. The order is the one in which an instant is given to an axis where several are open:
// tp, cp, ep, pp, dp, rdp, embedding, world, others by name.
struct CommAxes {
  std::vector<std::string> names;
  std::vector<std::vector<std::int8_t>> of;  // [stage][instruction], -1 for anything else
};
CommAxes comm_axes(const Plan& plan);
std::string axis_name(const Instruction& instruction);  // "" for anything else

// [lane][instruction]: when the last participant of a communication arrived; an instruction's own
// start for anything else. Throws Error if the ranks of a group do not make the same calls.
using Arrivals = std::vector<std::vector<std::int64_t>>;
Arrivals last_arrivals(const Plan& plan, const Timeline& timeline);

// [lane][instruction]: who that last participant was; an instruction itself for anything else.
struct Participant {
  int lane = 0;
  InstructionId id = kNone;
};
using LastParticipants = std::vector<std::vector<Participant>>;
LastParticipants last_participants(const Plan& plan, const Timeline& timeline);

// A send and the receive that takes it, by lane and instruction; one entry for every lane's
// receives. Throws Error as last_arrivals does.
struct Message {
  int from_lane = 0, to_lane = 0;
  InstructionId send = kNone, receive = kNone;
};
std::vector<Message> messages(const Plan& plan, const Timeline& timeline);

// A participant's time split at the last arrival: [start, arrival) is wait, the rest transfer. One
// that ended before it by more than `uncertainty_ns` did not need it: no wait.
struct WaitTransfer {
  Span wait, transfer;
};
WaitTransfer split_at(Span span, std::int64_t arrival_ns, std::int64_t uncertainty_ns = 0);

}  // namespace mb
