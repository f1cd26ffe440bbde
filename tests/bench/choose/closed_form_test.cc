#include "bench/choose/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/choose/search.h"
#include "tests/bench/choose/random_space.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Random cases of random questions against the Plan in virtual time: one in a hundred may be beyond
// the error that a search allows for.
TEST(ClosedForm, IsWithinItsErrorOfThePlanInVirtualTime) {
  test::Draw draw(7);
  double form = 0, walk = 0, memory = 0;
  int cases = 0, beyond = 0;
  for (int question = 0; question < 60; ++question) {
    const Space space(test::random_question(draw));
    const Question& q = space.question();
    ClosedForm closed(q.model, q.machine, q.stack);
    const std::vector<Candidate> all = test::all_of(space);
    for (int i = 0; i < 5 && !all.empty(); ++i) {
      const Candidate c = draw.of(all);
      const Mesh& mesh = space.meshes()[c.mesh];
      const StepOptions options = space.options_of(c);
      const Prediction p = predict(q.model, mesh, options, q.machine, q.stack);
      const Estimate e = closed.estimate(mesh, options);
      const double needed = needed_bytes(p), walked = closed.walked_s(mesh, options);
      const std::string of = cat(mesh.to_text(), " order ", mesh.order(), " ", options.schedule,
                                 " zero=", options.zero, " micro_batches=", options.micro_batches,
                                 " of ", options.micro_batch);
      // A case may be left out for what an estimate says too much.
      const EstimateError error = error_of(mesh, options, q.stack);
      const double over =
          std::max({(e.step_s / p.step_s - 1) / error.form, (walked / p.step_s - 1) / error.walk,
                    (e.memory_bytes / needed - 1) / error.memory});
      beyond += over > 1;
      EXPECT_LT(over, 3) << mesh.to_text() << " order " << mesh.order() << ' ' << options.schedule
                         << " zero=" << options.zero << " micro_batches=" << options.micro_batches
                         << " of " << options.micro_batch;
      form += std::abs(e.step_s / p.step_s - 1);
      walk += std::abs(walked / p.step_s - 1);
      memory += std::abs(e.memory_bytes / needed - 1);
      ++cases;
    }
  }
  ASSERT_GT(cases, 200);
  RecordProperty("mean_form_error_percent", std::to_string(100 * form / cases));
  EXPECT_LE(beyond, cases / 100);
  EXPECT_LT(form / cases, 0.12);
  EXPECT_LT(walk / cases, 0.12);
  EXPECT_LT(memory / cases, 0.06) << "what a stack keeps beside the Plan is not counted";
}

// Over slow NICs, where whole messages would take several times as long.
TEST(ClosedForm, SendsInPartsOfTensorRanksWhereTheStackDoes) {
  ModelConfig model = find_model("gpt3-1.3b");
  Machine machine = find_machine("a100x8");
  machine.inter.gb_per_s = 0.5;
  Mesh mesh = Mesh::parse("pp2.tp8");
  mesh.set_ranks_per_node(8);
  const StepOptions options{.micro_batches = 32, .dtype = DType::fp16};
  for (const char* name : {"megatron-2021", "kernels"}) {
    const Stack stack = find_stack(name);
    const double walked = ClosedForm(model, machine, stack).walked_s(mesh, options);
    const double step = predict(model, mesh, options, machine, stack).step_s;
    EXPECT_NEAR(walked / step, 1, error_of(mesh, options, stack).walk) << name;
  }
}

}  // namespace
}  // namespace mb
