#include "bench/choose/slot_walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule/closed_form.h"
#include "parallel/schedule/schedule.h"
#include "tests/support/slot_simulator.h"

namespace mb {
namespace {

const std::vector<PipelineShape> kShapes = {{1, 2, 6}, {2, 2, 8}, {4, 2, 8}, {4, 2, 12}};

TEST(SlotWalk, EndsWhenAnIndependentSimulationDoes) {
  for (const Schedule& schedule : schedules()) {
    for (PipelineShape shape : kShapes) {
      if (usual_chunks(schedule.placement) == 1) shape.chunks = 1;
      for (const double hop : {0.0, 0.3}) {
        const SlotCosts costs{1, 1.5, 0.75, hop};
        const auto slots = slots_of(schedule, shape);
        const double share = 1.0 / shape.chunks;
        const PassSeconds chunk =
            share * PassSeconds{costs.forward, costs.input_grad + costs.weight_grad,
                                costs.input_grad, costs.weight_grad};
        const std::vector<RankSlots> ranks(
            shape.ranks,
            {std::vector<PassSeconds>(shape.chunks, chunk), std::vector<double>(shape.chunks, 0)});
        const std::vector<double> each(shape.ranks, hop);
        const auto ends = slot_ends(slots, schedule.placement, ranks, {each, each}, false);
        const Transport unbounded{.in_flight = 1000};
        EXPECT_NEAR(*std::max_element(ends.begin(), ends.end()),
                    simulate_slots(slots, schedule.placement, costs, unbounded).makespan, 1e-9)
            << schedule.name << " p=" << shape.ranks << " m=" << shape.micro_batches;
      }
    }
  }
}

TEST(SlotWalk, KeepsAsManyChunksAsTheClosedFormSays) {
  for (const Schedule& schedule : schedules()) {
    for (PipelineShape shape : kShapes) {
      if (usual_chunks(schedule.placement) == 1) shape.chunks = 1;
      const auto slots = slots_of(schedule, shape);
      for (int rank = 0; rank < shape.ranks; ++rank) {
        int most = 0;
        for (const InFlight& f : most_in_flight(slots[rank]))
          most = std::max(most, f.whole + f.pending);
        const auto form = peak_live_chunks(schedule.name, shape, rank);
        ASSERT_TRUE(form);
        EXPECT_LE(most, *form) << schedule.name << " rank " << rank;
        EXPECT_GE(most + (schedule.splits_backward ? 1 : 0), *form) << schedule.name << rank;
      }
    }
  }
}

}  // namespace
}  // namespace mb
