#include "parallel/schedule/receive_order.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "workloads/base/mutation.h"

namespace mb {
namespace {

struct Message {
  int left = 0;  // the time when its maker ends
  int slot = 0;  // of the receiver
  int from = 0;  // rank
};

// Every slot at its earliest time, F, I and W of 1 each.
class UnitTime {
 public:
  UnitTime(const std::vector<std::vector<Slot>>& slots, Placement placement)
      : slots_(slots), placement_(placement), ends_(slots.size()), inputs_(slots.size()) {
    for (const auto& rank : slots_) {
      for (const Slot& slot : rank) chunks_ = std::max(chunks_, slot.chunk + 1);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks(); ++rank) {
        while (advance(rank)) moved = true;
      }
    }
  }

  std::vector<Receive> receives(int rank) const {
    std::vector<Message> messages = inputs_[rank];
    std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) {
      return std::tie(a.left, a.from) < std::tie(b.left, b.from);
    });
    std::vector<Receive> order;
    // Later than the last slot that is reached by then, the sender might wait for the receiver.
    for (const Message& message : messages) {
      const auto reached = std::upper_bound(ends_[rank].begin(), ends_[rank].end(), message.left);
      const int last_reached = static_cast<int>(reached - ends_[rank].begin());
      order.push_back({message.slot, std::min(last_reached, std::max(message.slot - 1, 0))});
    }
    if (mutated("receives_swapped") && order.size() > 1) std::swap(order[0], order[1]);
    for (std::size_t i = order.size(); i-- > 1;)
      order[i - 1].before = std::min(order[i - 1].before, order[i].before);
    return order;
  }

 private:
  using Key = std::tuple<int, bool, int>;  // virtual stage, forward, micro-batch

  int ranks() const { return static_cast<int>(slots_.size()); }

  bool advance(int rank) {
    std::vector<int>& ends = ends_[rank];
    if (ends.size() == slots_[rank].size()) return false;
    const Slot& slot = slots_[rank][ends.size()];
    const bool forward = slot.pass == Pass::forward;
    const int stage = stage_of(placement_, rank, slot.chunk, ranks());
    const int from = stage + (forward ? -1 : 1);
    int start = ends.empty() ? 0 : ends.back();
    if (slot.pass != Pass::weight_grad && from >= 0 && from < ranks() * chunks_) {
      const auto made = made_.find({from, forward, slot.micro_batch});
      if (made == made_.end()) return false;
      start = std::max(start, made->second);
      const int from_rank = place_of(placement_, from, ranks()).rank;
      if (from_rank != rank)
        inputs_[rank].push_back({made->second, static_cast<int>(ends.size()), from_rank});
    }
    ends.push_back(start + (slot.pass == Pass::backward ? 2 : 1));
    if (slot.pass != Pass::weight_grad) made_[{stage, forward, slot.micro_batch}] = ends.back();
    return true;
  }

  const std::vector<std::vector<Slot>>& slots_;
  Placement placement_;
  int chunks_ = 1;
  std::vector<std::vector<int>> ends_;        // by rank and slot
  std::vector<std::vector<Message>> inputs_;  // by receiving rank
  std::map<Key, int> made_;                   // when
};

}  // namespace

std::vector<std::vector<Receive>> receive_order(const std::vector<std::vector<Slot>>& slots,
                                                Placement placement) {
  const UnitTime run(slots, placement);
  std::vector<std::vector<Receive>> order;
  for (std::size_t rank = 0; rank < slots.size(); ++rank)
    order.push_back(run.receives(static_cast<int>(rank)));
  return order;
}

}  // namespace mb
