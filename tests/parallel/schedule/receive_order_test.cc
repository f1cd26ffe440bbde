#include "parallel/schedule/receive_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "parallel/plan/text.h"
#include "parallel/schedule/check_slots.h"
#include "tests/support/shapes.h"
#include "tests/support/slot_simulator.h"

namespace mb {
namespace {

constexpr SlotCosts kCosts[] = {{1, 1, 1}, {1, 1.2, 0.8, 0.1}, {1, 3, 0.5}, {3, 1, 2, 0.5}};

TEST(ReceiveOrder, AsksOnceForEveryInputFromAnotherRankAndAheadOfItsSlot) {
  for (const Schedule& schedule : schedules()) {
    for (const PipelineShape& shape : legal_shapes(schedule, 5)) {
      const auto slots = slots_of(schedule, shape);
      const auto order = receive_order(slots, schedule.placement);
      const int p = shape.ranks, stages = p * shape.chunks;
      for (int rank = 0; rank < p; ++rank) {
        std::vector<int> asked, needed;
        int before = 0;
        for (const Receive& receive : order[rank]) {
          asked.push_back(receive.slot);
          EXPECT_LE(receive.before, std::max(receive.slot - 1, 0));
          EXPECT_GE(receive.before, before);
          before = receive.before;
        }
        std::sort(asked.begin(), asked.end());
        for (int at = 0; at < static_cast<int>(slots[rank].size()); ++at) {
          const Slot& slot = slots[rank][at];
          const int from = stage_of(schedule.placement, rank, slot.chunk, p) +
                           (slot.pass == Pass::forward ? -1 : 1);
          if (slot.pass != Pass::weight_grad && from >= 0 && from < stages &&
              place_of(schedule.placement, from, p).rank != rank)
            needed.push_back(at);
        }
        EXPECT_EQ(asked, needed) << shape_text(schedule.name, shape) << " rank " << rank;
      }
    }
  }
}

TEST(ReceiveOrder, EndsWithoutBuffersAndWithSendsAndReceivesInOrder) {
  for (const Schedule& schedule : schedules()) {
    for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
      const auto slots = slots_of(schedule, shape);
      Transport transport{.rendezvous = true,
                          .receives = receive_order(slots, schedule.placement),
                          .order = Transport::Order::by_stream};
      for (const SlotCosts& costs : kCosts) {
        const auto run = [&] { simulate_slots(slots, schedule.placement, costs, transport); };
        ASSERT_EQ(message_of(run), "no Error") << shape_text(schedule.name, shape);
      }
      transport.in_flight = 1;
      EXPECT_EQ(
          message_of([&] { simulate_slots(slots, schedule.placement, kCosts[1], transport); }),
          "no Error")
          << shape_text(schedule.name, shape);
    }
  }
}

// Slots of a step in an order that any rank may run, each next one picked at random.
std::vector<std::vector<Slot>> random_slots(Placement placement, const PipelineShape& shape,
                                            std::mt19937& random) {
  const int p = shape.ranks, stages = p * shape.chunks, m = shape.micro_batches;
  std::vector<std::vector<Slot>> slots(p);
  // Done of each virtual stage and micro-batch: F at 1, I at 2, W at 3.
  std::vector<std::vector<int>> done(stages, std::vector<int>(m, 0));
  for (int left = 3 * stages * m; left > 0;) {
    const int stage = static_cast<int>(random() % stages),
              micro_batch = static_cast<int>(random() % m);
    int& progress = done[stage][micro_batch];
    const bool ready = progress == 0   ? stage == 0 || done[stage - 1][micro_batch] >= 1
                       : progress == 1 ? stage == stages - 1 || done[stage + 1][micro_batch] >= 2
                                       : progress == 2;
    if (!ready) continue;
    constexpr Pass kPassOf[] = {Pass::forward, Pass::input_grad, Pass::weight_grad};
    const RankChunk place = place_of(placement, stage, p);
    slots[place.rank].push_back({kPassOf[progress], micro_batch, place.chunk});
    ++progress;
    --left;
  }
  return slots;
}

TEST(ReceiveOrder, EndsForAnyOrderThatIsAStep) {
  std::mt19937 random(7);
  for (int run = 0; run < 2000; ++run) {
    const auto placement = static_cast<Placement>(run % 3);
    const PipelineShape shape{1 + static_cast<int>(random() % 5),
                              placement == Placement::linear   ? 1
                              : placement == Placement::looped ? 3
                                                               : 2,
                              1 + static_cast<int>(random() % 6)};
    const auto slots = random_slots(placement, shape, random);
    ASSERT_EQ(message_of([&] { check_slots(slots, placement, shape); }), "no Error");
    const Transport transport{.rendezvous = true,
                              .in_flight = 1,
                              .receives = receive_order(slots, placement),
                              .order = Transport::Order::by_stream};
    ASSERT_EQ(message_of([&] { simulate_slots(slots, placement, kCosts[1], transport); }),
              "no Error")
        << schedule_text(slots, placement);
  }
}

TEST(OneSlotAhead, IsEnoughForLinearSchedulesInOrder) {
  for (const Schedule& schedule : schedules()) {
    if (schedule.placement != Placement::linear) continue;
    for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
      const auto slots = slots_of(schedule, shape);
      const Transport transport{.rendezvous = true, .order = Transport::Order::by_stream};
      for (const SlotCosts& costs : kCosts) {
        EXPECT_EQ(message_of([&] { simulate_slots(slots, schedule.placement, costs, transport); }),
                  "no Error")
            << shape_text(schedule.name, shape);
      }
    }
  }
}

TEST(OneSlotAhead, IsEnoughForRoundsAsLongAsThePipeIfMessagesPassEachOther) {
  const Schedule& schedule = find_schedule("interleaved");
  for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
    if (shape.group > 0) continue;
    const auto slots = slots_of(schedule, shape);
    EXPECT_EQ(
        message_of([&] { simulate_slots(slots, Placement::looped, {}, {.rendezvous = true}); }),
        "no Error")
        << shape_text(schedule.name, shape);
  }
}

// Why receive_order is there: a receiver may run many slots between a message and its use.
TEST(OneSlotAhead, BlocksLongRoundsAndSchedulesThatPutWorkOff) {
  const auto blocks = [](std::string_view name, const PipelineShape& shape) {
    const Schedule& schedule = find_schedule(name);
    const auto slots = slots_of(schedule, shape);
    return message_of([&] { simulate_slots(slots, schedule.placement, {}, {.rendezvous = true}); })
        .starts_with("deadlock: stage 0 at slot ");
  };
  EXPECT_TRUE(blocks("interleaved", {2, 2, 5, 5}));
  EXPECT_TRUE(blocks("interleaved-zb", {4, 2, 8}));
  EXPECT_TRUE(blocks("zb-v", {4, 2, 8}));
  EXPECT_TRUE(blocks("dualpipe-v", {4, 2, 8}));
}

TEST(ReceiveOrder, OfOneFOneBIsOneSlotAheadOnTheFirstRank) {
  const auto slots = slots_of(find_schedule("1f1b"), {2, 1, 3});  // rank 0: F0 F1 B0 F2 B1 B2
  EXPECT_EQ(receive_order(slots, Placement::linear)[0],
            (std::vector<Receive>{{2, 1}, {4, 3}, {5, 4}}));
}

}  // namespace
}  // namespace mb
