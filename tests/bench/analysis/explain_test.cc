#include "bench/analysis/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/bench/synthetic.h"

namespace mb {
namespace {

double sum(const Explained& step) {
  double total = 0;
  for (const ExplainedPart& part : step.parts) total += part.seconds;
  return total;
}

double part(const Explained& step, std::string_view kind, std::string_view name = "") {
  double total = 0;
  for (const ExplainedPart& p : step.parts)
    if (p.kind == kind && (name.empty() || p.name == name)) total += p.seconds;
  return total;
}

struct Setting {
  std::string model = "gpt3-1.3b", mesh = "pp4.tp2", schedule = "1f1b", machine = "h100x8",
              stack = "kernels";
  int micro_batches = 8, chunks = 0, zero = 0;
  Recompute recompute = Recompute::none;
};
Explained explained(const Setting& s) {
  StepOptions options{.schedule = s.schedule, .micro_batches = s.micro_batches};
  options.dtype = DType::bf16;
  options.chunks = s.chunks;
  options.zero = s.zero;
  options.recompute = s.recompute;
  return explain(find_model(s.model), Mesh::parse(s.mesh), options, find_machine(s.machine),
                 find_stack(s.stack));
}

TEST(Explain, PartsAddUpToThePredictedStep) {
  for (const char* mesh : {"1", "dp8", "tp8", "pp4", "dp2.pp4.tp2", "cp2.dp2", "pp4.tp8.dp16"}) {
    for (const int micro_batches : {2, 8, 200}) {
      for (const char* stack : {"kernels", "megatron-vtrain"}) {
        const Explained step =
            explained({.mesh = mesh, .stack = stack, .micro_batches = micro_batches});
        EXPECT_NEAR(sum(step), step.prediction.step_s, 1e-8 * step.prediction.step_s)
            << mesh << " " << micro_batches << " " << stack;
        for (const ExplainedPart& p : step.parts)
          EXPECT_GT(p.seconds, -1e-3 * step.prediction.step_s)
              << mesh << " " << micro_batches << " " << stack << ": " << p.kind << " " << p.name;
      }
    }
  }
}

TEST(Explain, MicroBatchesThatAreCountedByRoundsHaveThePartsOfThoseThatAreWalked) {
  const Explained few = explained({.micro_batches = 40}), many = explained({.micro_batches = 80});
  for (const char* kind : {"compute", "exposed"}) {
    const double each = (part(many, kind) - part(few, kind)) / 40;
    EXPECT_NEAR(part(few, kind), 40 * each, 0.05 * part(few, kind)) << kind;
  }
  EXPECT_NEAR(part(many, "wait"), part(few, "wait"), 0.25 * part(few, "wait"));
  EXPECT_GT(part(few, "wait"), 0);
  EXPECT_NEAR(part(many, "optimizer"), part(few, "optimizer"), 1e-6);
}

TEST(Explain, RecomputationIsOneMoreForward) {
  const Explained kept = explained({.mesh = "1"}),
                  again = explained({.mesh = "1", .recompute = Recompute::full});
  EXPECT_EQ(part(kept, "recompute"), 0);
  EXPECT_NEAR(part(again, "compute"), part(kept, "compute"), 1e-9);
  EXPECT_GT(part(again, "recompute"), 0.2 * part(kept, "compute"));
  EXPECT_LT(part(again, "recompute"), 0.4 * part(kept, "compute"));
}

TEST(Explain, InterleavingTakesFromTheBubbleAndAddsMessages) {
  const Explained plain = explained({.mesh = "pp4", .micro_batches = 8}),
                  looped = explained(
                      {.mesh = "pp4", .schedule = "interleaved", .micro_batches = 8, .chunks = 3});
  EXPECT_LT(part(looped, "wait"), 0.6 * part(plain, "wait"));
  EXPECT_GT(part(looped, "exposed", "pp"), part(plain, "exposed", "pp"));
}

TEST(Explain, DifferencesOfPartsAddUpToTheDifferenceOfSteps) {
  const Explained a = explained({.mesh = "dp8"}), b = explained({.mesh = "dp2.pp2.tp2"}),
                  c = explained({.mesh = "tp8", .recompute = Recompute::full});
  const std::vector<ComparedPart> parts = compare_parts({&a, &b, &c});
  for (const auto& [other, step] : {std::pair(1, &b), std::pair(2, &c)}) {
    double difference = 0;
    for (const ComparedPart& p : parts) difference += p.seconds[other] - p.seconds[0];
    EXPECT_NEAR(difference, step->prediction.step_s - a.prediction.step_s, 1e-9);
  }
  std::vector<std::string> order;
  for (const ComparedPart& p : parts) order.push_back(p.name.empty() ? p.kind : p.name);
  const std::vector<std::string> wanted = {"matmul", "attention", "other", "recompute",
                                           "optimizer"};
  ASSERT_GE(order.size(), wanted.size());
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 5), wanted);
}

}  // namespace
}  // namespace mb
