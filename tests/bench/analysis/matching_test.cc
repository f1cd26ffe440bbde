#include "bench/analysis/matching.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"
#include "tests/support/error.h"

namespace mb {
namespace {

TEST(Matching, CollectiveOfTwoRanksArrivesWithTheLaterOne) {
  HandPlan hand("dp2");
  const InstructionId first = hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  const InstructionId second = hand.all_reduce(0, group_of(Axis::dp), Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{0, 50}, {60, 90}};
  timeline.lanes[1] = {{30, 50}, {55, 90}};
  const Arrivals arrivals = last_arrivals(hand.plan, timeline);
  for (int rank : {0, 1}) {
    EXPECT_EQ(arrivals[rank][first], 30);
    EXPECT_EQ(arrivals[rank][second], 60);
  }
}

TEST(Matching, SendsMeetReceivesOfTheSamePairInOrder) {
  HandPlan hand("pp2");
  hand.add(0, Send{1}, Stream::pp_send);
  hand.add(0, Send{1}, Stream::pp_send);
  hand.add(0, Recv{1}, Stream::pp_recv);
  hand.add(1, Recv{0}, Stream::pp_recv);
  hand.add(1, Send{0}, Stream::pp_send);
  hand.add(1, Recv{0}, Stream::pp_recv);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[0] = {{5, 12}, {20, 32}, {0, 17}};
  timeline.lanes[1] = {{10, 12}, {15, 17}, {12, 32}};
  const Arrivals arrivals = last_arrivals(hand.plan, timeline);
  EXPECT_EQ(arrivals[0], (std::vector<std::int64_t>{10, 20, 15}));
  EXPECT_EQ(arrivals[1], (std::vector<std::int64_t>{10, 15, 20}));
}

TEST(Matching, RanksOnOneLaneArriveTogether) {
  HandPlan hand("dp4.pp2");
  for (int stage : {0, 1}) {
    hand.all_reduce(stage, group_of(Axis::dp), Stream::dp);
    hand.all_reduce(stage, kWorld, Stream::dp);
  }
  Timeline timeline;
  timeline.lanes = {{{0, 10}, {10, 40}}, {{3, 13}, {30, 40}}};
  for (int rank = 0; rank < 8; ++rank)
    timeline.lane_of_rank.push_back(hand.plan.mesh.coordinate(rank, Axis::pp));
  const Arrivals arrivals = last_arrivals(hand.plan, timeline);
  EXPECT_EQ(arrivals[0], (std::vector<std::int64_t>{0, 30}));
  EXPECT_EQ(arrivals[1], (std::vector<std::int64_t>{3, 30}));
}

TEST(Matching, AxesComeInTheOrderOfPriority) {
  HandPlan hand("dp2.pp2.tp2");
  for (int stage : {0, 1}) {
    hand.all_reduce(stage, kWorld, Stream::dp);
    hand.all_reduce(stage, kEnds, Stream::dp);
    hand.all_reduce(stage, group_of(Axis::dp), Stream::dp);
    hand.all_reduce(stage, group_of(Axis::tp), Stream::tp);
  }
  hand.add(0, Send{1}, Stream::pp_send);
  hand.add(1, Recv{0}, Stream::pp_recv);
  EXPECT_EQ(comm_axes(hand.plan).names,
            (std::vector<std::string>{"tp", "pp", "dp", "embedding", "world"}));
}

TEST(Matching, PartsOfAGroupMeetByThemselves) {
  HandPlan hand("tp4");
  Group pairs = group_of(Axis::tp);
  pairs.part = 2;
  const InstructionId all = hand.all_reduce(0, group_of(Axis::tp), Stream::dp);
  const InstructionId pair = hand.all_reduce(0, pairs, Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  for (int rank = 0; rank < 4; ++rank) timeline.lanes[rank] = {{10 * rank, 40}, {50 + rank, 60}};
  const Arrivals arrivals = last_arrivals(hand.plan, timeline);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(arrivals[rank][all], 30);
    EXPECT_EQ(arrivals[rank][pair], rank < 2 ? 51 : 53);
  }
  EXPECT_EQ(comm_axes(hand.plan).names, (std::vector<std::string>{"tp", "tp/2"}));
}

TEST(Matching, GroupWhoseRanksCallDifferentlyIsRefused) {
  HandPlan hand("pp2");
  hand.all_reduce(0, kWorld, Stream::dp);
  Timeline timeline = empty_timeline(hand.plan);
  EXPECT_EQ(message_of([&] { last_arrivals(hand.plan, timeline); }),
            "group world: rank 0 makes 1 calls on stream dp, rank 1 makes 0");
}

TEST(Matching, SendWithoutReceiveIsRefused) {
  HandPlan hand("pp2");
  hand.add(0, Send{1}, Stream::pp_send);
  Timeline timeline = empty_timeline(hand.plan);
  EXPECT_EQ(message_of([&] { last_arrivals(hand.plan, timeline); }),
            "rank 0: 1 sends to rank 1, which has 0 to match");
}

TEST(Matching, TimelineOfAnotherPlanIsRefused) {
  HandPlan hand("dp2");
  hand.compute(0);
  Timeline timeline = empty_timeline(hand.plan);
  timeline.lanes[1].emplace_back();
  EXPECT_EQ(message_of([&] { lanes_of(hand.plan, timeline); }),
            "rank 1: the timeline has 2 instructions, the plan 1");
  timeline.lane_of_rank.pop_back();
  EXPECT_EQ(message_of([&] { lanes_of(hand.plan, timeline); }),
            "the timeline has 1 ranks, the plan 2");
}

TEST(Matching, WaitEndsAndTransferStartsAtTheLastArrival) {
  const WaitTransfer split = split_at({10, 50}, 30);
  EXPECT_EQ(split.wait, (Span{10, 30}));
  EXPECT_EQ(split.transfer, (Span{30, 50}));
}

TEST(Matching, ParticipantThatEndsBeforeTheLastArrivalDidNotWait) {
  const WaitTransfer early = split_at({10, 50}, 60);
  EXPECT_EQ(early.wait, (Span{10, 10}));
  EXPECT_EQ(early.transfer, (Span{10, 50}));
  const WaitTransfer within_uncertainty = split_at({10, 50}, 60, 10);
  EXPECT_EQ(within_uncertainty.wait, (Span{10, 50}));
  EXPECT_EQ(within_uncertainty.transfer, (Span{50, 50}));
}

}  // namespace
}  // namespace mb
