#include "bench/choose/explain.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

Question question() {
  Question q;
  q.model = find_model("gpt3-125m");
  q.model.layers = 8;
  q.machine = find_machine("h100x8");
  q.machine.ranks_per_node = 4;
  q.stack = find_stack("megatron-2021");
  q.gpus = 16;
  q.global_batch = 64;
  q.options.dtype = DType::bf16;
  q.memory_bytes = 80e9;
  return q;
}

TEST(Anatomy, PartsAddUpToTheStepAlsoOfRoundsThatAreNotWalked) {
  const Question q = question();
  Mesh mesh = Mesh::parse("dp2.pp4.tp2");
  mesh.set_ranks_per_node(4);
  StepOptions options = q.options;
  options.micro_batches = 40;
  const Anatomy anatomy = anatomy_of(q, mesh, options);
  const double step_s = predict(q.model, mesh, options, q.machine, q.stack).step_s;
  double sum = 0;
  for (const TimePart& part : anatomy.parts) sum += part.seconds;
  EXPECT_NEAR(sum, step_s, 1e-6 * step_s);
  EXPECT_EQ(anatomy.parts.front().name, "compute");
  // Rings: an all-reduce of n bytes over t ranks puts 2 (t - 1) n on the wires.
  for (const AxisPlacement& axis : anatomy.axes) {
    if (axis.axis == "pp") {
      const double message = 2.0 * static_cast<double>(q.model.sequence * q.model.hidden);
      EXPECT_DOUBLE_EQ(axis.inter_bytes + axis.intra_bytes, 40 * 2 * 3 * 4 * message);
    }
  }
}

TEST(ProbabilityFaster, IsAHalfForEqualStepsAndSurerOnOneMesh) {
  EXPECT_DOUBLE_EQ(probability_faster(1, 1, 0.1, true), 0.5);
  EXPECT_NEAR(probability_faster(1, 1.1, 0.1, false), 0.7544, 1e-3);  // ln 1.1 / (0.1 sqrt(1.92))
  EXPECT_GT(probability_faster(1, 1.1, 0.1, true), probability_faster(1, 1.1, 0.1, false));
  EXPECT_NEAR(probability_faster(1, 1.1, 0.1, true) + probability_faster(1.1, 1, 0.1, true), 1,
              1e-12);
}

TEST(Changes, MoreOfAnythingIsNeverSlowerAndLessNeverFaster) {
  const Question q = question();
  Mesh mesh = Mesh::parse("dp4.pp2.tp2");
  mesh.set_ranks_per_node(4);
  StepOptions options = q.options;
  options.micro_batches = 8;
  const double step_s = predict(q.model, mesh, options, q.machine, q.stack).step_s;
  const std::vector<Change> changes = changes_of(q, mesh, options, step_s);
  ASSERT_EQ(changes.size(), 6u);
  for (const Change& change : changes) {
    ASSERT_TRUE(change.step_s) << change.what;
    if (change.what.starts_with("10 %")) {
      EXPECT_LE(*change.step_s, step_s * (1 + 1e-9)) << change.what;
    } else {
      EXPECT_GE(*change.step_s, step_s) << change.what;
    }
  }
}

TEST(RankFile, PutsRanksOfTheUsualOrderWhereTheMeshHasThem) {
  Mesh mesh = Mesh::parse("dp2.tp2");
  mesh.set_ranks_per_node(2);
  EXPECT_EQ(rank_file(mesh),
            "rank 0=+n0 slot=0\nrank 1=+n0 slot=1\nrank 2=+n1 slot=0\nrank 3=+n1 slot=1\n");
  mesh.set_order("dp,tp");  // the data ranks of a tensor rank share a node
  EXPECT_EQ(rank_file(mesh),
            "rank 0=+n0 slot=0\nrank 1=+n1 slot=0\nrank 2=+n0 slot=1\nrank 3=+n1 slot=1\n");
}

TEST(Rules, AreNeverAheadOfTheBest) {
  Question q = question();
  q.cp = 1;
  q.offload = {{false, false}};
  const Space space(q);
  const SearchResult result = search(space, {.threads = 1});
  ASSERT_FALSE(result.fastest.empty());
  int followed = 0;
  for (const RuleResult& rule : follow_rules(space, result)) {
    if (!rule.best) continue;
    ++followed;
    EXPECT_GE(rule.best->prediction.step_s, result.fastest.front().prediction.step_s) << rule.name;
  }
  EXPECT_GE(followed, 5);
}

}  // namespace
}  // namespace mb
