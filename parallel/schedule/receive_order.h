// When each rank asks for its messages, so that no order of sends and receives can block.
#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"

namespace mb {

// The input of slot `slot` is asked for just before slot `before` of the same rank.
struct Receive {
  int slot = 0, before = 0;
  bool operator==(const Receive&) const = default;
};

// By rank, its receives in the order to post them: that in which all messages leave if every F, I
// and W takes the same time, as late as that allows, and at least one slot ahead of the slot that
// needs it. A rank's sends follow its slots. As both ends agree on one order of all messages, this
// holds even if a rank's sends move one after the other, as do its receives, without any buffer,
// and a slot waits until the message of the slot before last is gone. `slots` pass check_slots.
std::vector<std::vector<Receive>> receive_order(const std::vector<std::vector<Slot>>& slots,
                                                Placement placement);

}  // namespace mb
