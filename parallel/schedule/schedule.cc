#include "parallel/schedule/schedule.h"

#include "parallel/schedule/orders.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {

const std::vector<Schedule>& schedules() {
  using Shape = const PipelineShape&;
  constexpr std::string_view kRounds = "chunks=N, rounds of >= p m";
  static const std::vector<Schedule> table = {
      {"gpipe", "all forwards, then all backwards", "chunks=1", Placement::linear, false,
       [](Shape s) { check_chunks("gpipe", s, 1); }, gpipe},
      {"1f1b", "one forward, one backward: as many micro-batches in flight as ranks", "chunks=1",
       Placement::linear, false, [](Shape s) { check_chunks("1f1b", s, 1); }, one_f_one_b},
      {"interleaved", "1F1B of several chunks a rank: a smaller bubble, more messages", kRounds,
       Placement::looped, false, [](Shape s) { check_rounds("interleaved", s); }, interleaved},
      {"zb-h1", "1F1B with weight gradients put off into the bubble", "chunks=1", Placement::linear,
       true, [](Shape s) { check_chunks("zb-h1", s, 1); }, zb_h1},
      {"interleaved-zb", "interleaved with weight gradients put off into the bubble", kRounds,
       Placement::looped, true, [](Shape s) { check_rounds("interleaved-zb", s); }, interleaved_zb},
      {"zb-v", "two chunks a rank, down the ranks and back, weight gradients put off", "chunks=2",
       Placement::v, true, [](Shape s) { check_chunks("zb-v", s, 2); }, zb_v},
      {"dualpipe-v", "two chunks a rank, down and back, a forward next to each backward",
       "chunks=2, m >= 2p", Placement::v, true, [](Shape s) { check_two_a_rank("dualpipe-v", s); },
       dualpipe_v},
  };
  return table;
}

const Schedule& find_schedule(std::string_view name) {
  return find_named(schedules(), name, cat("schedule=", name),
                    [](const Schedule& s) { return s.name; });
}

std::vector<std::vector<Slot>> slots_of(const Schedule& schedule, const PipelineShape& shape) {
  schedule.check(shape);
  std::vector<std::vector<Slot>> slots;
  for (int rank = 0; rank < shape.ranks; ++rank) slots.push_back(schedule.order(rank, shape));
  return slots;
}

int usual_chunks(Placement placement) { return placement == Placement::linear ? 1 : 2; }

int stage_of(Placement placement, int rank, int chunk, int ranks) {
  if (placement == Placement::v) return chunk == 0 ? rank : 2 * ranks - 1 - rank;
  return chunk * ranks + rank;
}

RankChunk place_of(Placement placement, int stage, int ranks) {
  const int lap = stage / ranks, step = stage % ranks;
  return {placement == Placement::v && lap == 1 ? ranks - 1 - step : step, lap};
}

}  // namespace mb
