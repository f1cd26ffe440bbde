#include "tests/support/slot_simulator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "parallel/plan/text.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Place {
  int rank = 0, at = 0;
};

class Simulator {
 public:
  Simulator(const std::vector<std::vector<Slot>>& slots, Placement placement,
            const SlotCosts& costs, const Transport& transport)
      : slots_(slots), placement_(placement), costs_(costs), transport_(transport) {
    for (const auto& rank : slots_) {
      for (const Slot& slot : rank) chunks_ = std::max(chunks_, slot.chunk + 1);
      ends_.emplace_back(rank.size());
      arrivals_.emplace_back(rank.size());
    }
    connect();
    if (transport_.rendezvous) order_messages();
  }

  SlotRun run() {
    std::vector<int> ended(slots_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks(); ++rank) {
        for (int at = ended[rank]; at < size(rank); ++at) moved = advance(rank, at) || moved;
        while (ended[rank] < size(rank) && ends_[rank][ended[rank]]) ++ended[rank];
      }
    }
    std::string standing;
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto stopped = std::find(ends_[rank].begin(), ends_[rank].end(), std::nullopt);
      if (stopped == ends_[rank].end()) continue;
      const auto at = stopped - ends_[rank].begin();
      standing += cat(" stage ", rank, " at slot ", at, " ", to_text({slots_[rank][at]}), ";");
    }
    require(standing.empty(), "deadlock:", standing);
    return measured();
  }

 private:
  using Key = std::tuple<int, bool, int>;  // virtual stage, forward, micro-batch
  using Times = std::vector<std::optional<double>>;

  int ranks() const { return static_cast<int>(slots_.size()); }
  int size(int rank) const { return static_cast<int>(slots_[rank].size()); }
  static Key key(int stage, const Slot& slot) {
    return {stage, slot.pass == Pass::forward, slot.micro_batch};
  }
  // Not stage_of, so that a test of a schedule does not lean on what it tests.
  int stage(int rank, const Slot& slot) const {
    if (placement_ == Placement::v && slot.chunk == 1) return 2 * ranks() - 1 - rank;
    return slot.chunk * ranks() + rank;
  }

  // Fills in what rendezvous needs to know of each slot's messages.
  void order_messages() {
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<int> sending;
      std::vector<Receive> receiving;
      for (int at = 0; at < size(rank); ++at) {
        if (sends(rank, at)) sending.push_back(at);
        if (receives(rank, at)) receiving.push_back({at, std::max(at - 1, 0)});
      }
      if (!transport_.receives.empty()) receiving = transport_.receives[rank];
      posted_before_.emplace_back(size(rank));
      std::vector<int> received;
      for (const Receive& receive : receiving) {
        posted_before_[rank][receive.slot] = receive.before;
        received.push_back(receive.slot);
      }
      send_before_.push_back(predecessors(rank, sending));
      receive_before_.push_back(predecessors(rank, received));
    }
  }

  // By slot, the one of `messages` that has to move before it; kNone if none has to.
  std::vector<int> predecessors(int rank, const std::vector<int>& messages) const {
    std::vector<int> before(size(rank), kNone);
    if (transport_.order == Transport::Order::any) return before;
    int last[2] = {kNone, kNone};
    for (const int at : messages) {
      const bool forward = slots_[rank][at].pass == Pass::forward;
      int& line = last[transport_.order == Transport::Order::by_kind && forward];
      before[at] = line;
      line = at;
    }
    return before;
  }

  double cost(const Slot& slot) const {
    const double whole = slot.pass == Pass::forward       ? costs_.forward
                         : slot.pass == Pass::input_grad  ? costs_.input_grad
                         : slot.pass == Pass::weight_grad ? costs_.weight_grad
                                                          : costs_.input_grad + costs_.weight_grad;
    return whole / chunks_;
  }

  // Finds for every slot the slot that makes its input, if one does, and the one that needs its
  // result.
  void connect() {
    std::map<Key, Place> places;  // of each F, and each I or B
    for (int rank = 0; rank < ranks(); ++rank) {
      makers_.emplace_back(size(rank));
      takers_.emplace_back(size(rank));
      for (int at = 0; at < size(rank); ++at) {
        const Slot& slot = slots_[rank][at];
        if (slot.pass != Pass::weight_grad) places[key(stage(rank, slot), slot)] = {rank, at};
      }
    }
    for (const auto& [key, place] : places) {
      const auto& [stage, forward, micro_batch] = key;
      const int from = stage + (forward ? -1 : 1);
      if (from < 0 || from == ranks() * chunks_) continue;
      const Place maker = places.at({from, forward, micro_batch});
      makers_[place.rank][place.at] = maker;
      takers_[maker.rank][maker.at] = place;
    }
  }

  bool receives(int rank, int at) const {
    return makers_[rank][at] && makers_[rank][at]->rank != rank;
  }
  bool sends(int rank, int at) const {
    return takers_[rank][at] && takers_[rank][at]->rank != rank;
  }

  // When slot `at` is reached: the end of the one before it.
  std::optional<double> reached(int rank, int at) const {
    return at <= 0 ? std::optional<double>(0) : ends_[rank][at - 1];
  }

  // The later of what there is; nullopt if one of them is not known yet.
  static std::optional<double> later(std::optional<double> a, std::optional<double> b) {
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
  }

  // When the message that slot `at` sends is gone.
  std::optional<double> gone(int rank, int at) const {
    const Place to = *takers_[rank][at];
    return arrivals_[to.rank][to.at];
  }
  std::optional<double> earlier_sends_gone(int rank, int at) const {
    const int earlier = send_before_[rank][at];
    return earlier == kNone ? std::optional<double>(0) : gone(rank, earlier);
  }
  std::optional<double> earlier_receives_done(int rank, int at) const {
    const int earlier = receive_before_[rank][at];
    return earlier == kNone ? std::optional<double>(0) : arrivals_[rank][earlier];
  }

  // Finds out when the input of a slot is there, and when the slot ends; whether either is news.
  bool advance(int rank, int at) {
    const bool arrived = !arrivals_[rank][at] && (arrivals_[rank][at] = arrival(rank, at));
    const bool ended = !ends_[rank][at] && (ends_[rank][at] = end(rank, at));
    return arrived || ended;
  }

  std::optional<double> arrival(int rank, int at) const {
    const std::optional<Place>& from = makers_[rank][at];
    if (!from) return 0;
    std::optional<double> start = ends_[from->rank][from->at];
    if (from->rank == rank) return start;
    if (transport_.rendezvous) {
      start = later(start, earlier_sends_gone(from->rank, from->at));
      start = later(start, reached(rank, posted_before_[rank][at]));
      start = later(start, earlier_receives_done(rank, at));
    }
    return start ? std::optional(*start + costs_.hop) : std::nullopt;
  }

  std::optional<double> end(int rank, int at) const {
    std::optional<double> start = later(reached(rank, at), arrivals_[rank][at]);
    if (transport_.rendezvous && at >= transport_.in_flight &&
        sends(rank, at - transport_.in_flight))
      start = later(start, gone(rank, at - transport_.in_flight));
    return start ? std::optional(*start + cost(slots_[rank][at])) : std::nullopt;
  }

  SlotRun measured() const {
    SlotRun run;
    for (int rank = 0; rank < ranks(); ++rank)
      run.makespan = std::max(run.makespan, ends_[rank].back().value());
    for (int rank = 0; rank < ranks(); ++rank) {
      RankRun& r = run.ranks.emplace_back();
      int live = 0;
      for (const Slot& slot : slots_[rank]) {
        r.busy += cost(slot);
        live += slot.pass == Pass::forward;
        r.peak_live = std::max(r.peak_live, live);
        live -= slot.pass == Pass::weight_grad || slot.pass == Pass::backward;
      }
      r.idle = run.makespan - r.busy;
      r.start_delay = ends_[rank].front().value() - cost(slots_[rank].front());
      r.end_slack = run.makespan - ends_[rank].back().value();
      r.idle_inside = r.idle - r.start_delay - r.end_slack;
    }
    return run;
  }

  const std::vector<std::vector<Slot>>& slots_;
  Placement placement_;
  SlotCosts costs_;
  Transport transport_;
  int chunks_ = 1;
  std::vector<std::vector<std::optional<Place>>> makers_, takers_;  // by rank and slot, as below
  std::vector<std::vector<int>> posted_before_, send_before_, receive_before_;
  std::vector<Times> arrivals_, ends_;
};

}  // namespace

double SlotRun::bubble() const {
  double idle = 0;
  for (const RankRun& rank : ranks) idle += rank.idle;
  return idle / (makespan * static_cast<double>(ranks.size()));
}

SlotRun simulate_slots(const std::vector<std::vector<Slot>>& slots, Placement placement,
                       const SlotCosts& costs, const Transport& transport) {
  return Simulator(slots, placement, costs, transport).run();
}

}  // namespace mb
