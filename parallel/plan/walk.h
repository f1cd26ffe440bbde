// Walks all Programs of a Plan together, as ranks would: streams in list order, `after` respected,
// sends meeting receives and collectives each other, sends with no buffer to go to (rendezvous).
//
// What may follow what does not depend on how long anything takes. So a walk gives an order of
// events in which each comes after all that it depends on; times follow from it in one pass (see
// virtual_time.h), and that there is such an order proves that nothing deadlocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/plan/rank_classes.h"

namespace mb {

// One instruction as errors name it: "stage 1 pp_send #45 send F3 to stage 2".
std::string describe(const Plan& plan, int stage, InstructionId id);

// The host of every rank launches instructions in list order; none starts before it is launched.
// The host waits, until the instruction at hand may start, where that follows a message or a
// collective: it has to know that what was sent is there.
enum class HostWaits : std::uint8_t { never, messages, messages_and_collectives };

// By instruction: the last before it, itself left out, that makes the host wait; kNone: none does.
std::vector<InstructionId> host_waited_at(const Program& program, HostWaits waits);

struct WalkEvent {
  enum class Kind : std::uint8_t {
    run,     // instruction `id` of class `of`: starts and ends on its own
    arrive,  // it starts, and ends with its meeting
    meet     // meeting `id`: all of its parties have arrived
  };
  Kind kind = Kind::run;
  std::int32_t of = 0, id = 0;
};
struct Party {
  std::int32_t of = 0;  // class
  InstructionId id = 0;
};

struct WalkOrder {
  std::vector<WalkEvent> events;
  std::vector<Party> parties;                  // of meetings, end to end
  std::vector<std::uint32_t> ends_of_meeting;  // where each meeting's parties end

  std::span<const Party> parties_of(int meeting) const {
    const std::uint32_t begin = meeting == 0 ? 0 : ends_of_meeting[meeting - 1];
    return {parties.data() + begin, ends_of_meeting[meeting] - begin};
  }
};

// Throws Error naming where every class stands if they wait for each other, and naming both
// instructions if two that meet do not fit.
WalkOrder walk(const Plan& plan, const RankClasses& classes, HostWaits host = HostWaits::never);

}  // namespace mb
