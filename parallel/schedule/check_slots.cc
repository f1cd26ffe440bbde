#include "parallel/schedule/check_slots.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "parallel/plan/text.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::string text_of(Pass pass, int micro_batch, int chunk) {
  return to_text({{pass, micro_batch, chunk}});
}

std::string place_text(const std::vector<Slot>& slots, std::size_t at) {
  return cat("slot ", at, " '", to_text({slots[at]}), "'");
}

// --- one rank ---

// How far each micro-batch of each chunk has come: nothing is in no map.
enum class Progress { forward, input_grad, done };
using ProgressMap = std::map<std::pair<int, int>, Progress>;  // by chunk and micro-batch

// What is wrong with running `slot` now; "" if nothing. Takes the step in `progress`.
std::string take(const Slot& slot, const PipelineShape& shape, ProgressMap& progress) {
  const auto& [pass, m, chunk] = slot;
  if (m < 0 || m >= shape.micro_batches)
    return cat("there are micro-batches 0 to ", shape.micro_batches - 1, " only");
  if (chunk < 0 || chunk >= shape.chunks)
    return cat("a stage has chunks 0 to ", shape.chunks - 1, " only");
  const auto found = progress.find({chunk, m});
  const bool begun = found != progress.end();
  if (pass == Pass::forward) {
    if (begun) return "it has run before; leave one of the two out";
    progress[{chunk, m}] = Progress::forward;
    return "";
  }
  if (pass == Pass::backward || pass == Pass::input_grad) {
    if (!begun) return cat("it needs ", text_of(Pass::forward, m, chunk), " before it");
    if (found->second != Progress::forward)
      return "this micro-batch has gone back before; run either B, or I and then W, once";
    found->second = pass == Pass::backward ? Progress::done : Progress::input_grad;
    return "";
  }
  if (pass != Pass::weight_grad) return "a schedule has passes F, B, I and W only";
  if (!begun || found->second == Progress::forward)
    return cat("it needs ", text_of(Pass::input_grad, m, chunk), " before it");
  if (found->second == Progress::done)
    return "its weight gradient has been taken before; leave one of the two out";
  found->second = Progress::done;
  return "";
}

// What a rank never gets to; "" if it runs all.
std::string missing(const PipelineShape& shape, const ProgressMap& progress) {
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      const auto found = progress.find({chunk, m});
      if (found == progress.end())
        return cat("never runs ", text_of(Pass::forward, m, chunk), "; add it");
      if (found->second == Progress::forward)
        return cat("never runs ", text_of(Pass::backward, m, chunk), "; add it, or ",
                   text_of(Pass::input_grad, m, chunk), " and ",
                   text_of(Pass::weight_grad, m, chunk));
      if (found->second == Progress::input_grad)
        return cat("never runs ", text_of(Pass::weight_grad, m, chunk), "; add it after ",
                   text_of(Pass::input_grad, m, chunk));
    }
  }
  return "";
}

std::string wrong_on_rank(const std::vector<Slot>& slots, const PipelineShape& shape) {
  ProgressMap progress;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const std::string wrong = take(slots[at], shape, progress);
    if (!wrong.empty()) return cat(place_text(slots, at), ": ", wrong);
  }
  return missing(shape, progress);
}

// --- all ranks ---

// Runs the slots of all ranks as far as they go.
class Walk {
 public:
  Walk(const std::vector<std::vector<Slot>>& slots, Placement placement, const PipelineShape& shape)
      : slots_(slots), placement_(placement), shape_(shape), at_(slots.size(), 0) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        for (; at_[rank] < slots_[rank].size() && ready(rank); ++at_[rank]) {
          const Slot& slot = slots_[rank][at_[rank]];
          if (slot.pass != Pass::weight_grad) run_.insert(key(stage(rank), slot));
          moved = true;
        }
      }
    }
  }

  // The first rank that stands, and for what each stands.
  std::optional<WrongSlot> deadlock() const {
    std::optional<WrongSlot> wrong;
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      if (at_[rank] == slots_[rank].size()) continue;
      const std::string stands =
          cat(place_text(slots_[rank], at_[rank]), " waits for ", input_text(rank));
      if (wrong) {
        wrong->what += cat(", and stage ", rank, " ", stands);
      } else {
        wrong = WrongSlot{rank, cat("never gets further, as ", stands)};
      }
    }
    if (wrong) wrong->what += "; let each of them run after what it waits for";
    return wrong;
  }

 private:
  using Key = std::tuple<int, bool, int>;  // stage, forward, micro-batch
  static Key key(int stage, const Slot& slot) {
    return {stage, slot.pass == Pass::forward, slot.micro_batch};
  }
  int stage(int rank) const {
    return stage_of(placement_, rank, slots_[rank][at_[rank]].chunk, shape_.ranks);
  }
  // The stage whose result the next slot of `rank` needs, if it is one.
  int input_stage(int rank) const {
    return stage(rank) + (slots_[rank][at_[rank]].pass == Pass::forward ? -1 : 1);
  }
  bool ready(int rank) const {
    const Slot& slot = slots_[rank][at_[rank]];
    const int from = input_stage(rank);
    return slot.pass == Pass::weight_grad || from < 0 || from == shape_.ranks * shape_.chunks ||
           run_.contains(key(from, slot));
  }
  std::string input_text(int rank) const {
    const Slot& slot = slots_[rank][at_[rank]];
    const RankChunk from = place_of(placement_, input_stage(rank), shape_.ranks);
    return cat(text_of(slot.pass, slot.micro_batch, from.chunk), " of stage ", from.rank);
  }

  const std::vector<std::vector<Slot>>& slots_;
  Placement placement_;
  PipelineShape shape_;
  std::vector<std::size_t> at_;  // by rank, the next slot
  std::set<Key> run_;
};

}  // namespace

std::optional<WrongSlot> find_wrong_slot(const std::vector<std::vector<Slot>>& slots,
                                         Placement placement, const PipelineShape& shape) {
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::string wrong = wrong_on_rank(slots[rank], shape);
    if (!wrong.empty()) return WrongSlot{rank, std::move(wrong)};
  }
  return Walk(slots, placement, shape).deadlock();
}

void check_slots(const std::vector<std::vector<Slot>>& slots, Placement placement,
                 const PipelineShape& shape) {
  require(static_cast<int>(slots.size()) == shape.ranks, "a schedule of ", slots.size(),
          " stages does not fit ", shape.ranks, " pipeline ranks; give one line for each");
  const auto wrong = find_wrong_slot(slots, placement, shape);
  require(!wrong, "stage ", wrong ? wrong->rank : 0, ' ', wrong ? wrong->what : "");
}

}  // namespace mb
