#include "parallel/exec/shaped_world.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/error.h"
#include "tests/support/rank_threads.h"

namespace mb {
namespace {

constexpr LinkShape kShape{.intra = {.latency_us = 2, .gb_per_s = 4},
                           .inter = {.latency_us = 20, .gb_per_s = 0.5}};
const std::vector<int> kNodes = {0, 0, 1, 1};

TEST(LinkShape, IsReadBackAsItIsPrinted) {
  const std::string text = "intra:4GB/s,2us;inter:0.5GB/s,20us";
  EXPECT_EQ(parse_link_shape(text, "link"), kShape);
  EXPECT_EQ(to_text(kShape), text);
  const LinkShape shared = parse_link_shape("inter:400Gbit/s/node,1ms;intra:8 GB/s,0ns", "link");
  EXPECT_TRUE(shared.inter_of_node);
  EXPECT_EQ(to_text(shared), "intra:8GB/s,0us;inter:50GB/s/node,1000us");
}

TEST(LinkShape, RefusesWhatIsWrong) {
  const auto refusal = [](std::string_view text) {
    return message_of([&] { parse_link_shape(text, "link"); });
  };
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"intra:4GB/s,2us", "both"},
           {"", "both"},
           {"4GB/s", "no link"},
           {"intra:4,2us;inter:1GB/s,2us", "intra"},
           {"intra:4GB/s;inter:1GB/s,2us", "intra"},
           {"intra:4GB/s/node,2us;inter:1GB/s,2us", "intra"},
           {"intra:4GB/s,2us;intra:1GB/s,2us", "twice"}}) {
    EXPECT_NE(refusal(text).find(part), std::string::npos) << text << ": " << refusal(text);
    EXPECT_NE(refusal(text).find("link"), std::string::npos) << refusal(text);
  }
}

TEST(LinkLoad, OfARingIsThatOfItsSlowestLink) {
  const std::vector<int> pair = {0, 1}, all = {0, 1, 2, 3};
  const LinkLoad within = load_of(kShape, CollectiveKind::all_reduce, 8000, pair, kNodes);
  EXPECT_DOUBLE_EQ(within.seconds, 8000 / 4e9);
  EXPECT_DOUBLE_EQ(within.latency_s, 2 * 2e-6);
  const LinkLoad across = load_of(kShape, CollectiveKind::all_reduce, 8000, all, kNodes);
  EXPECT_NEAR(across.seconds, 6 * 2000 / 0.5e9, 1e-15);
  EXPECT_DOUBLE_EQ(across.latency_s, 6 * 20e-6);
  ASSERT_EQ(across.uses.size(), 8u) << "one out of each rank and one into it";
  for (const LinkUse& use : across.uses)  // the edges within nodes wait for the others
    EXPECT_NEAR(use.share, use.link % 2 == 1 ? 1 : 0.125, 1e-12);
}

TEST(LinkLoad, OfASharedLinkIsThatOfAllRanksOfTheNode) {
  LinkShape shape = kShape;
  shape.inter_of_node = true;
  const std::vector<int> all = {0, 1, 2, 3};
  const LinkLoad own = load_of(kShape, CollectiveKind::all_to_all, 8000, all, kNodes);
  const LinkLoad shared = load_of(shape, CollectiveKind::all_to_all, 8000, all, kNodes);
  EXPECT_NEAR(own.seconds, 3 * 2000 / 0.5e9, 1e-15);
  EXPECT_NEAR(shared.seconds, 2 * 2 * 2000 / 0.5e9, 1e-15) << "two ranks to two others";
  const LinkLoad message = load_of_message(shape, 1000, 1, 2, kNodes);
  ASSERT_EQ(message.uses.size(), 1u);
  EXPECT_EQ(message.uses[0].link, 1) << "of node 0";
  EXPECT_DOUBLE_EQ(message.seconds, 1000 / 0.5e9);
}

TEST(LinkLoad, OfOneRootIsThatOfTheDirectionItsLinkIsBusyIn) {
  LinkShape shared = kShape;
  shared.inter_of_node = true;
  const std::vector<int> all = {0, 1, 2, 3};
  for (const LinkShape& shape : {kShape, shared}) {
    // Links between nodes, out of and into the root.
    for (const auto& [kind, link] :
         {std::pair(CollectiveKind::scatter, 1), std::pair(CollectiveKind::gather, 3)}) {
      const LinkLoad load = load_of(shape, kind, 8000, all, kNodes);
      const auto use = std::find_if(load.uses.begin(), load.uses.end(),
                                    [&](const LinkUse& u) { return u.link == link; });
      ASSERT_NE(use, load.uses.end());
      EXPECT_NEAR(use->share * load.seconds, 2 * 2000 / 0.5e9, 1e-15) << name_of(kind);
    }
  }
}

// Ranks 0 and 1 each with a partner on the other node.
TEST(LinkLoad, OfTwoGroupsThatShareANodesLinkIsHalfTheRateForEach) {
  LinkShape shared = kShape;
  shared.inter_of_node = true;
  for (const LinkShape& shape : {kShape, shared}) {
    LinkFlows flows;
    std::vector<int> running;
    double alone = 0;
    for (const std::vector<int>& group : {std::vector{0, 2}, std::vector{1, 3}}) {
      const LinkLoad load = load_of(shape, CollectiveKind::all_reduce, 1 << 20, group, kNodes);
      alone = load.seconds;
      running.push_back(flows.start(0, load.seconds, load.uses));
    }
    for (const int flow : running)
      EXPECT_NEAR(flows.end_of(flow) / alone, shape.inter_of_node ? 2 : 1, 0.01);
  }
}

TEST(ShapedWorld, MovesAndCountsWhatTheWorldDoes) {
  ThreadWorld plain(4), inner(4);
  ShapedWorld shaped(inner, kShape, kNodes);
  const auto results = [](World& world) {
    std::vector<std::vector<float>> out(4);
    std::vector<CommCount> counts(4);
    EXPECT_EQ(test::on_ranks(world,
                             [&](int rank) {
                               const auto comm = world.comm("g", test::first_ranks(4), rank);
                               std::vector<float> data(100, static_cast<float>(rank)), all(400);
                               comm->all_reduce(data.data(), 100, DType::fp32, ReduceOp::sum);
                               comm->all_gather(data.data(), all.data(), 100, DType::fp32);
                               comm->shift(data.data(), all.data(), 100, DType::fp32);
                               comm->broadcast(data.data(), 50, DType::fp32, 2);
                               comm->reduce_scatter(all.data(), data.data(), 100, DType::fp32,
                                                    ReduceOp::max);
                               comm->send_recv(data.data(), 40, (rank + 1) % 4, all.data(), 40,
                                               (rank + 3) % 4);
                               if (rank == 0) comm->send(all.data(), 400, 3);
                               if (rank == 3) comm->recv(data.data(), 400, 0);
                               comm->barrier();
                               all.insert(all.end(), data.begin(), data.end());
                               out[rank] = all;
                               counts[rank] = comm->carried();
                             }),
              "");
    return std::pair(out, counts);
  };
  EXPECT_EQ(results(plain), results(shaped));
}

TEST(ShapedWorld, WakesWhoeverWaitsWhenItAborts) {
  ThreadWorld inner(2);
  LinkShape slow = kShape;
  slow.intra.gb_per_s = 1e-9;  // a byte a second
  ShapedWorld shaped(inner, slow, {0, 0});
  const std::string message = test::on_ranks(shaped, [&](int rank) {
    const auto comm = shaped.comm("g", {0, 1}, rank);

    std::vector<float> data(1000);
    if (rank == 1) {
      // Rank 0 is waiting by then or comes to wait; either way it wakes.
      std::thread([&] { shaped.abort("enough"); }).join();
    }
    EXPECT_THROW(comm->all_reduce(data.data(), 1000, DType::fp32, ReduceOp::sum), Aborted);
  });
  EXPECT_EQ(message, "");
  EXPECT_EQ(shaped.reason(), "enough");
}

TEST(ShapedWorld, WakesThoseWhoseOperationIsUnderWay) {
  ThreadWorld inner(2);
  LinkShape slow = kShape;
  slow.intra.gb_per_s = 1e-9;
  ShapedWorld shaped(inner, slow, {0, 0});
  std::atomic<int> entered{0};
  const std::jthread watch([&] {
    while (entered < 2) std::this_thread::yield();
    shaped.abort("late");
  });
  EXPECT_EQ(test::on_ranks(shaped,
                           [&](int rank) {
                             const auto comm = shaped.comm("g", {0, 1}, rank);
                             std::vector<float> data(1000);
                             ++entered;
                             EXPECT_THROW(
                                 comm->all_reduce(data.data(), 1000, DType::fp32, ReduceOp::sum),
                                 Aborted);
                           }),
            "");
}

TEST(ShapedWorld, RefusesNodesThatDoNotFit) {
  ThreadWorld inner(2);
  EXPECT_NE(message_of([&] { ShapedWorld(inner, kShape, {0}); }).find("1 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
