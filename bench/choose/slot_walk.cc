#include "bench/choose/slot_walk.h"

#include <algorithm>

#include "parallel/schedule/schedule.h"

namespace mb {
namespace {

constexpr double kNotYet = -1;

class SlotWalk {
 public:
  SlotWalk(const std::vector<std::vector<Slot>>& slots, Placement placement,
           const std::vector<RankSlots>& ranks, const MeshLinks::Hops& hops, bool hop_holds)
      : slots_(slots),
        placement_(placement),
        ranks_(ranks),
        count_(static_cast<int>(ranks.size())),
        stages_(count_ * static_cast<int>(ranks[0].chunks.size())),
        hops_(hops),
        hop_holds_(hop_holds),
        next_(ranks.size()),
        free_(ranks.size()) {
    for (const Slot& slot : slots[0])
      micro_batches_ = std::max(micro_batches_, slot.micro_batch + 1);
    for (std::vector<double>& ready : ready_)
      ready.assign(static_cast<std::size_t>(stages_) * micro_batches_, kNotYet);
    for (int m = 0; m < micro_batches_; ++m) {
      at(false, 0, m) = 0;
      at(true, stages_ - 1, m) = 0;  // the loss follows the last forward on its own rank
    }
  }

  std::vector<double> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < count_; ++rank) {
        while (advance(rank)) moved = true;
      }
    }
    return free_;
  }

 private:
  double& at(bool backward, int stage, int micro_batch) {
    return ready_[backward][static_cast<std::size_t>(stage) * micro_batches_ + micro_batch];
  }

  bool advance(int rank) {
    if (next_[rank] == slots_[rank].size()) return false;
    const Slot& slot = slots_[rank][next_[rank]];
    const int stage = stage_of(placement_, rank, slot.chunk, count_);
    const PassSeconds& seconds = ranks_[rank].chunks[slot.chunk];
    double& free = free_[rank];
    if (slot.pass == Pass::weight_grad) {
      free += seconds.weight_grad;
      ++next_[rank];
      return true;
    }
    const bool backward = slot.pass != Pass::forward;
    const double ready = at(backward, stage, slot.micro_batch);
    if (ready == kNotYet) return false;
    free = std::max(free, ready);
    free += !backward                     ? seconds.forward
            : slot.pass == Pass::backward ? seconds.backward
                                          : seconds.input_grad;
    if (!backward && slot.micro_batch == 0)
      free = std::max(free, ranks_[rank].first_forward_s[slot.chunk]);
    pass_on(rank, stage, slot.micro_batch, backward);
    ++next_[rank];
    return true;
  }

  void pass_on(int rank, int stage, int micro_batch, bool backward) {
    const int to = stage + (backward ? -1 : 1);
    if (to < 0 || to == stages_) return;
    const int other = place_of(placement_, to, count_).rank;
    const double hop_s = other == rank                  ? 0
                         : other == (rank + 1) % count_ ? hops_.next[rank]
                                                        : hops_.before[rank];
    at(backward, to, micro_batch) = free_[rank] + hop_s;
    if (hop_holds_) free_[rank] += hop_s;
  }

  const std::vector<std::vector<Slot>>& slots_;
  Placement placement_;
  const std::vector<RankSlots>& ranks_;
  int count_, stages_, micro_batches_ = 1;
  const MeshLinks::Hops& hops_;
  bool hop_holds_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::vector<double> ready_[2];  // of inputs and of gradients, by stage and micro-batch
};

}  // namespace

std::vector<double> slot_ends(const std::vector<std::vector<Slot>>& slots, Placement placement,
                              const std::vector<RankSlots>& ranks, const MeshLinks::Hops& hops,
                              bool hop_holds) {
  return SlotWalk(slots, placement, ranks, hops, hop_holds).run();
}

std::vector<InFlight> most_in_flight(const std::vector<Slot>& slots) {
  std::vector<InFlight> most;
  InFlight now;
  for (const Slot& slot : slots) {
    if (slot.pass == Pass::forward) ++now.whole;
    if (slot.pass == Pass::backward || slot.pass == Pass::input_grad) --now.whole;
    if (slot.pass == Pass::input_grad) ++now.pending;
    if (slot.pass == Pass::weight_grad) --now.pending;
    const auto covers = [](const InFlight& a, const InFlight& b) {
      return a.whole >= b.whole && a.pending >= b.pending;
    };
    if (std::any_of(most.begin(), most.end(), [&](const InFlight& m) { return covers(m, now); }))
      continue;
    std::erase_if(most, [&](const InFlight& m) { return covers(now, m); });
    most.push_back(now);
  }
  return most;
}

}  // namespace mb
