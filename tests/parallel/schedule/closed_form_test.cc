// The cost of schedules in closed form, against a simulation of their slots.
#include "parallel/schedule/closed_form.h"

#include <gtest/gtest.h>

#include "tests/support/shapes.h"
#include "tests/support/slot_simulator.h"

namespace mb {
namespace {

constexpr double kRounding = 1e-9;  // thirds and tenths are not exact

SlotRun simulated(std::string_view name, const PipelineShape& shape, const SlotCosts& costs = {}) {
  const Schedule& schedule = find_schedule(name);
  std::vector<std::vector<Slot>> slots;  // also of shapes that the schedule's rule leaves out
  for (int rank = 0; rank < shape.ranks; ++rank) slots.push_back(schedule.order(rank, shape));
  return simulate_slots(slots, schedule.placement, costs);
}

std::vector<int> peaks(const SlotRun& run) {
  std::vector<int> peaks;
  for (const RankRun& rank : run.ranks) peaks.push_back(rank.peak_live);
  return peaks;
}

// --- the forms over all shapes ---

TEST(IdleClosedForm, IsThatOfTheSimulation) {
  constexpr SlotCosts kCosts[] = {{1, 1, 1}, {1, 1.2, 0.8}, {1, 2, 0.5}, {1, 0.5, 2},   {3, 1, 1},
                                  {1, 1, 3}, {1, 3, 1},     {2, 1.5, 1}, {0.5, 1, 0.25}};
  for (const Schedule& schedule : schedules()) {
    for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
      for (const SlotCosts& costs : kCosts) {
        const auto form = idle_closed_form(schedule.name, shape, costs.forward, costs.input_grad,
                                           costs.weight_grad);
        const bool equal =
            costs.forward == costs.input_grad && costs.input_grad == costs.weight_grad;
        ASSERT_EQ(form.has_value(), schedule.name != "zb-v" || equal);
        if (!form) continue;
        for (const RankRun& rank : simulated(schedule.name, shape, costs).ranks) {
          ASSERT_NEAR(rank.idle, *form, kRounding)
              << shape_text(schedule.name, shape) << " F=" << costs.forward
              << " I=" << costs.input_grad << " W=" << costs.weight_grad;
        }
      }
    }
  }
}

TEST(PeakLiveChunks, AreThoseOfTheSlots) {
  for (const Schedule& schedule : schedules()) {
    for (const PipelineShape& shape : legal_shapes(schedule, 8)) {
      const SlotRun run = simulated(schedule.name, shape);
      for (int rank = 0; rank < shape.ranks; ++rank)
        EXPECT_EQ(run.ranks[rank].peak_live, peak_live_chunks(schedule.name, shape, rank))
            << shape_text(schedule.name, shape) << " rank " << rank;
    }
  }
}

// One form for all costs, on both sides of W = I, F = I + W and (p-1) I = p F.
TEST(IdleClosedForm, OfDualPipeVHoldsForAllCosts) {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {2 * p, 2 * p + 1, 4 * p}) {
      for (double f = 0.5; f <= 3; f += 0.5) {
        for (double i = 0.5; i <= 3; i += 0.5) {
          for (double w = 0.5; w <= 3; w += 0.5) {
            const SlotRun run = simulated("dualpipe-v", {p, 2, m}, {f, i, w});
            ASSERT_EQ(run.ranks[0].idle, idle_closed_form("dualpipe-v", {p, 2, m}, f, i, w))
                << "p=" << p << " m=" << m << " F=" << f << " I=" << i << " W=" << w;
          }
        }
      }
    }
  }
}

TEST(ClosedForm, OfAScheduleThatIsNotKnownIsNone) {
  EXPECT_FALSE(idle_closed_form("mine", {4, 1, 8}, 1, 1, 1));
  EXPECT_FALSE(peak_live_chunks("mine", {4, 1, 8}, 0));
  EXPECT_FALSE(idle_closed_form("zb-v", {4, 2, 8}, 1, 1.2, 0.8));
}

// --- numbers written down before the code was ---

struct Fixture {
  const char* schedule;
  int ranks, chunks, micro_batches;
  double makespan, bubble;
};

TEST(Fixtures, MakespansAndBubblesAtEqualCosts) {
  const Fixture fixtures[] = {
      {"gpipe", 2, 1, 4, 15, 0.2},
      {"1f1b", 2, 1, 4, 15, 0.2},
      {"interleaved", 2, 2, 4, 13.5, 0.1111},
      {"interleaved", 2, 4, 4, 12.75, 0.0588},
      {"zb-h1", 2, 1, 4, 13, 0.0769},
      {"interleaved-zb", 2, 2, 4, 12.5, 0.04},
      {"zb-v", 2, 2, 4, 12.5, 0.04},
      {"dualpipe-v", 2, 2, 4, 12.5, 0.04},
      {"gpipe", 4, 1, 8, 33, 0.2727},
      {"1f1b", 4, 1, 8, 33, 0.2727},
      {"interleaved", 4, 2, 8, 28.5, 0.1579},
      {"interleaved", 4, 4, 8, 26.25, 0.0857},
      {"zb-h1", 4, 1, 8, 27, 0.1111},
      {"interleaved-zb", 4, 2, 8, 25.5, 0.0588},
      {"zb-v", 4, 2, 8, 25.5, 0.0588},
      {"dualpipe-v", 4, 2, 8, 25.5, 0.0588},
      {"gpipe", 4, 1, 16, 57, 0.1579},
      {"1f1b", 4, 1, 16, 57, 0.1579},
      {"interleaved", 4, 2, 16, 52.5, 0.0857},
      {"interleaved", 4, 4, 16, 50.25, 0.0448},
      {"zb-h1", 4, 1, 16, 51, 0.0588},
      {"interleaved-zb", 4, 2, 16, 49.5, 0.0303},
      {"zb-v", 4, 2, 16, 49.5, 0.0303},
      {"dualpipe-v", 4, 2, 16, 49.5, 0.0303},
      {"gpipe", 8, 1, 16, 69, 0.3043},
      {"1f1b", 8, 1, 16, 69, 0.3043},
      {"interleaved", 8, 2, 16, 58.5, 0.1795},
      {"interleaved", 8, 4, 16, 53.25, 0.0986},
      {"zb-h1", 8, 1, 16, 55, 0.1273},
      {"interleaved-zb", 8, 2, 16, 51.5, 0.0680},
      {"zb-v", 8, 2, 16, 51.5, 0.0680},
      {"dualpipe-v", 8, 2, 16, 51.5, 0.0680},
      {"1f1b", 4, 1, 1, 12, 0.75},
      {"1f1b", 4, 1, 2, 15, 0.6},
      {"1f1b", 4, 1, 3, 18, 0.5},
      {"zb-v", 4, 2, 4, 15, 0.2},
  };
  for (const Fixture& f : fixtures) {
    const SlotRun run = simulated(f.schedule, {f.ranks, f.chunks, f.micro_batches});
    SCOPED_TRACE(testing::Message() << f.schedule << " p=" << f.ranks << " m=" << f.micro_batches);
    EXPECT_EQ(run.makespan, f.makespan);
    EXPECT_NEAR(run.bubble(), f.bubble, 5e-5);
  }
}

TEST(Fixtures, MakespansWithTimeBetweenRanks) {
  const SlotCosts costs{1, 1.2, 0.8, 0.1};
  const auto expect = [&](const char* schedule, int chunks, double makespan, double bubble) {
    const SlotRun run = simulated(schedule, {4, chunks, 8}, costs);
    EXPECT_NEAR(run.makespan, makespan, kRounding) << schedule;
    EXPECT_NEAR(run.bubble(), bubble, 5e-5) << schedule;
  };
  expect("1f1b", 1, 34.6, 0.3064);
  expect("zb-h1", 1, 29.4, 0.1837);
  expect("interleaved", 2, 29.9, 0.1973);
}

// Rounds that do not fill the ranks cost what `check` spares the user.
TEST(Fixtures, InterleavedRoundsThatDoNotFillTheRanksLoseMuch) {
  EXPECT_EQ(simulated("interleaved", {4, 2, 10, 4}).makespan, 39.5);
  EXPECT_EQ(simulated("interleaved", {4, 2, 10, 5}).makespan, 34.5);
  EXPECT_EQ(simulated("interleaved", {4, 2, 10, 6}).makespan, 34.5);
  EXPECT_NEAR(simulated("interleaved", {4, 2, 9, 4}).bubble(), 0.2703, 5e-5);
  EXPECT_NEAR(simulated("interleaved", {4, 2, 11, 4}).bubble(), 0.1429, 5e-5);
  EXPECT_NEAR(simulated("interleaved", {4, 2, 5, 4}).bubble(), 0.375, 5e-5);
  EXPECT_NEAR(simulated("interleaved", {4, 2, 5, 5}).bubble(), 0.2308, 5e-5);
}

TEST(Fixtures, PeaksOfLiveChunks) {
  EXPECT_EQ(peaks(simulated("gpipe", {4, 1, 8})), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(peaks(simulated("1f1b", {4, 1, 8})), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(peaks(simulated("interleaved", {4, 2, 8})), (std::vector{11, 9, 7, 5}));
  EXPECT_EQ(peaks(simulated("interleaved", {4, 4, 8})), (std::vector{19, 17, 15, 13}));
  EXPECT_EQ(peaks(simulated("zb-h1", {4, 1, 8})), (std::vector{4, 4, 4, 4}));
  EXPECT_EQ(peaks(simulated("interleaved-zb", {4, 2, 8})), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(peaks(simulated("zb-v", {4, 2, 8})), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(peaks(simulated("zb-v", {4, 2, 4})), (std::vector{5, 6, 7, 8}));
  EXPECT_EQ(peaks(simulated("dualpipe-v", {4, 2, 8})), (std::vector{9, 9, 9, 9}));
}

TEST(Fixtures, ZbVLosesMuchAtUnequalCosts) {
  EXPECT_NEAR(simulated("zb-v", {4, 2, 8}, {1, 1.2, 0.8}).ranks[0].idle, 1.8, kRounding);
  EXPECT_EQ(simulated("zb-v", {4, 2, 8}, {1, 2, 0.5}).ranks[0].idle, 4.5);
}

// "Zero bubble" is idle within a rank's own span: time that a step ends later for all the same.
TEST(Fixtures, IdleSplitsIntoStartDelayEndSlackAndTheRest) {
  struct Row {
    const char* schedule;
    int chunks;
    double idle;
    std::vector<double> start_delay, end_slack, inside;
  };
  const Row rows[] = {
      {"1f1b", 1, 9, {0, 1, 2, 3}, {0, 2, 4, 6}, {9, 6, 3, 0}},
      {"zb-h1", 1, 3, {0, 1, 2, 3}, {0, 0, 0, 0}, {3, 2, 1, 0}},
      {"interleaved-zb", 2, 1.5, {0, 0.5, 1, 1.5}, {0, 0, 0, 0}, {1.5, 1, 0.5, 0}},
      {"zb-v", 2, 1.5, {0, 0.5, 1, 1.5}, {1.5, 1, 0.5, 0}, {0, 0, 0, 0}},
  };
  for (const Row& row : rows) {
    const SlotRun run = simulated(row.schedule, {4, row.chunks, 8});
    for (int rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(testing::Message() << row.schedule << " rank " << rank);
      EXPECT_EQ(run.ranks[rank].idle, row.idle);
      EXPECT_EQ(run.ranks[rank].start_delay, row.start_delay[rank]);
      EXPECT_EQ(run.ranks[rank].end_slack, row.end_slack[rank]);
      EXPECT_EQ(run.ranks[rank].idle_inside, row.inside[rank]);
    }
  }
}

}  // namespace
}  // namespace mb
