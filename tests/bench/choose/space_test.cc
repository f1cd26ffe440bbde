#include "bench/choose/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/analysis/placement.h"
#include "bench/choose/search.h"
#include "tests/bench/choose/random_space.h"
#include "tests/support/error.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

Question small() {
  Question q;
  q.model = find_model("gpt-1m");
  q.machine = find_machine("h100x8");
  q.stack = find_stack("kernels");
  q.gpus = 16;
  q.global_batch = 64;
  q.options.dtype = DType::bf16;
  q.memory_bytes = 80e9;
  return q;
}

TEST(Space, HasEveryLegalMeshOfItsGpus) {
  Question q = small();
  q.order = "tp-cp-ep-dp-rdp-pp";
  const Space space(q);
  // Ways to write 2^4 as a product of tp, cp, pp, rdp and dp, C(8, 4), but for those that replicate
  // what nothing divides: 2^n with n >= 1 as rdp and the rest as tp and pp, 4 + 3 + 2 + 1.
  EXPECT_EQ(space.meshes().size(), 70u - 10u);
  for (const Mesh& mesh : space.meshes()) EXPECT_EQ(mesh.world(), 16);
}

TEST(Space, HasReplicasWhereTheySaveNodes) {
  const Space space(small());
  int replicated = 0;
  for (const Candidate& c : test::all_of(space)) {
    const Mesh& mesh = space.meshes()[c.mesh];
    if (mesh.size(Axis::rdp) == 1) continue;
    ++replicated;
    EXPECT_GE(c.zero, 1);
    EXPECT_TRUE(mesh.crosses_nodes(kReplicas)) << mesh.to_text() << ' ' << mesh.order();
  }
  EXPECT_GT(replicated, 0);
  Question q = small();
  q.rdp = 2;
  const Space given(q);
  for (const Mesh& mesh : given.meshes()) EXPECT_EQ(mesh.size(Axis::rdp), 2);
}

TEST(Space, HasBothWaysOfContextAndPartsOfMatmuls) {
  Question q = small();
  q.cp = 2;
  q.tp = 2;
  int ulysses = 0, chunks = 0;
  const Space space(q);
  for (const Candidate& c : test::all_of(space)) {
    ulysses += c.context == ContextKind::ulysses;
    chunks += c.tensor_chunks == 2;
    if (c.tensor_chunks == 1) {
      EXPECT_EQ(space.in_chunks(c).size(), 1u);
    }
  }
  EXPECT_GT(ulysses, 0);
  EXPECT_GT(chunks, 0);
}

TEST(Space, KeepsWhatIsFixed) {
  Question q = small();
  q.tp = 2;
  q.zero = 1;
  q.schedule = "interleaved";
  q.chunks = 2;
  q.micro_batch = 2;
  q.recompute = Recompute::full;
  const Space space(q);
  const std::vector<Candidate> all = test::all_of(space);
  ASSERT_FALSE(all.empty());
  for (const Candidate& c : all) {
    const StepOptions options = space.options_of(c);
    EXPECT_EQ(space.meshes()[c.mesh].size(Axis::tp), 2);
    EXPECT_EQ(options.zero, 1);
    EXPECT_EQ(options.schedule, "interleaved");
    EXPECT_EQ(options.micro_batch, 2);
    EXPECT_EQ(options.recompute, Recompute::full);
  }
}

// What is left out for its order of axes is never faster than what is kept.
TEST(Space, LeavesOutNoOrderThatIsFaster) {
  test::Draw draw(2);
  int left_out = 0;
  for (int i = 0; i < 12; ++i) {
    Question q = test::random_question(draw);
    q.gpus = 16;
    q.machine.ranks_per_node = draw.of<int>({2, 4});
    const Space space(q);
    const std::vector<Candidate> all = test::all_of(space);
    if (all.empty()) continue;
    Candidate c = draw.of(all);
    const Mesh& mesh = space.meshes()[c.mesh];
    double kept = INFINITY;
    for (std::size_t m = 0; m < space.meshes().size(); ++m) {
      if (space.meshes()[m].to_text() != mesh.to_text()) continue;
      Candidate here = c;
      here.mesh = static_cast<std::int32_t>(m);
      kept = std::min(kept, simulate_candidate(space, here).prediction.step_s);
    }
    for (const OrderClass& order : distinct_orders(mesh)) {
      const double step_s =
          predict(q.model, order.mesh, space.options_of(c), q.machine, q.stack).step_s;
      EXPECT_GE(step_s, kept * (1 - 1e-9)) << mesh.to_text() << ' ' << order.orders.front();
      ++left_out;
    }
  }
  EXPECT_GT(left_out, 12);
}

TEST(Space, CountsWhatARuleForbidsUnderOneName) {
  EXPECT_EQ(rule_of("mesh=dp2.tp16: model.heads=12 do not divide over tp=16; legal tp: 1, 2"),
            "model.heads=N do not divide over tp=N");
  EXPECT_EQ(rule_of("model.layers=40 do not fill 64 stages; give fewer"),
            "model.layers=N do not fill N stages");
  const Space space(small());
  std::int64_t refused = 0;
  for (int mesh = 0; mesh < static_cast<int>(space.meshes().size()); ++mesh) {
    space.visit(
        mesh, [](const Candidate&, const StepOptions&) {},
        [&](const Refusal& r) {
          EXPECT_FALSE(r.rule.empty());
          refused += r.cases;
        });
  }
  EXPECT_GT(refused, 0);
}

TEST(Space, RefusesQuestionsThatNoCaseAnswers) {
  const auto refuses = [](auto&& change, const char* text) {
    Question q = small();
    change(q);
    EXPECT_NE(message_of([&] { Space space(q); }).find(text), std::string::npos) << text;
  };
  refuses([](Question& q) { q.gpus = 12; }, "gpus=12 does not fill nodes of 8; nearest: 8 or 16");
  refuses([](Question& q) { q.tp = 3; }, "tp=3 does not divide gpus=16");
  refuses([](Question& q) { q.machine.nodes = 1; }, "give fewer, or machine.nodes=2");
  refuses([](Question& q) { q.ep = 2; }, "has no experts");
  refuses([](Question& q) { q.rdp = 2, q.zero = 0; }, "rdp=2 replicates what ZeRO divides");
  refuses([](Question& q) { q.mesh = Mesh::parse("dp8"); }, "has 8 ranks, and gpus=16");
  refuses([](Question& q) { q.tp = 4, q.pp = 8; }, "no mesh of gpus=16");
  refuses([](Question& q) { q.global_batch = 0; }, "give the sequences of a step");
}

}  // namespace
}  // namespace mb
