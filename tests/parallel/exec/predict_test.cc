#include "parallel/exec/predict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/exec/sim_executor.h"
#include "parallel/strategy/step.h"

namespace mb {
namespace {

ModelConfig small_model() {
  ModelConfig model = find_model("gpt-1m");
  set_field(model, "layers", "16");
  return model;
}

double walked_s(const Mesh& mesh, const StepOptions& options, const Machine& machine,
                const Stack& stack) {
  const Plan plan = plan_step(small_model(), mesh, options);
  const Span window = simulate(plan, *make_roofline_cost(plan, machine, stack)).window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

struct Folded {
  const char *mesh, *schedule;
  int chunks, micro_batches;
};

// Rounds after the pipeline has settled take equally long, so that leaving them out changes
// nothing but roundings to whole nanoseconds.
TEST(Predict, LeavesOutRoundsWithoutLosingTime) {
  const Machine machine = find_machine("a100x8");
  for (const Folded& f :
       {Folded{"1", "1f1b", 1, 40}, Folded{"dp4.tp2", "1f1b", 1, 33}, Folded{"pp4", "1f1b", 1, 64},
        Folded{"pp4", "1f1b", 1, 65}, Folded{"pp8.tp2", "1f1b", 1, 96},
        Folded{"pp4", "interleaved", 2, 64}, Folded{"pp4.dp2", "interleaved", 4, 48}}) {
    for (const double host_us : {0.0, 20.0}) {
      Mesh mesh = Mesh::parse(f.mesh);
      mesh.set_ranks_per_node(8);
      Stack stack = find_stack("kernels");
      stack.host_us = host_us;
      StepOptions options{.schedule = f.schedule, .chunks = f.chunks};
      options.micro_batches = f.micro_batches;
      options.dtype = DType::bf16;
      const Prediction p = predict(small_model(), mesh, options, machine, stack);
      const double whole = walked_s(mesh, options, machine, stack);
      EXPECT_LT(p.simulated_micro_batches, f.micro_batches) << f.mesh;
      EXPECT_NEAR(p.step_s, whole, 2e-3 * whole)
          << f.mesh << ' ' << f.schedule << " host " << host_us;
    }
  }
}

// A host that takes longer than the device has the last word: a launch for each kernel.
TEST(Predict, TakesAtLeastTheLaunchesOfTheHost) {
  const ModelConfig model = small_model();
  const Mesh mesh = Mesh::parse("1");
  StepOptions options{.micro_batches = 2};
  options.dtype = DType::bf16;
  Stack stack = find_stack("kernels");
  const Machine machine = find_machine("h100x8");
  const double device = predict(model, mesh, options, machine, stack).step_s;
  stack.host_us = 1000;
  const Plan plan = plan_step(model, mesh, options);
  double launches = 0;
  for (const Instruction& i : plan.programs[0].instructions)
    launches += std::holds_alternative<Compute>(i.action);
  const double bound = predict(model, mesh, options, machine, stack).step_s;
  EXPECT_GE(bound, (launches - 1) * 1e-3) << "the step begins with the first launched";
  EXPECT_LE(bound, launches * 1e-3 + device);
  stack.host_us = 1e-3;
  EXPECT_NEAR(predict(model, mesh, options, machine, stack).step_s, device, 0.01 * device)
      << "a quick host runs ahead and costs nothing";
}

TEST(Predict, IntervalIsThatOfTheStacksRows) {
  Stack stack = find_stack("kernels");
  stack.log_sigma = 0.05;
  const Machine machine = find_machine("h100x8");
  const Prediction p = predict(small_model(), Mesh::parse("1"), {}, machine, stack);
  EXPECT_NEAR(p.interval.high_s / p.step_s, 1.0662, 1e-3);
  EXPECT_NEAR(p.step_s / p.interval.low_s, 1.0662, 1e-3);
  EXPECT_TRUE(p.interval.extrapolated.empty());
  stack.log_sigma = 0;
  EXPECT_FALSE(
      predict(small_model(), Mesh::parse("1"), {}, machine, stack).interval.extrapolated.empty());
}

// sigma^2 = 0.05^2 + 0.1^2 of another machine, + (3 * 0.03)^2 of three doublings of the nodes.
TEST(Predict, IntervalWidensBeyondWhatWasFittedOn) {
  Stack stack = find_stack("kernels");
  stack.log_sigma = 0.05;
  stack.fitted_machine = "a100x8";
  stack.fitted_nodes = 1;
  Mesh mesh = Mesh::parse("dp64");
  mesh.set_ranks_per_node(8);
  const auto half_width = [&](const char* machine) {
    const StepInterval interval = interval_of(1.0, mesh, find_machine(machine), stack);
    return std::pair(std::log(interval.high_s), interval.extrapolated.size());
  };
  const auto [same, one] = half_width("a100x8");
  EXPECT_EQ(one, 1u);
  EXPECT_NEAR(same, 1.2816 * std::sqrt(0.05 * 0.05 + 0.09 * 0.09), 1e-3);
  const auto [other, two] = half_width("h100x8");
  EXPECT_EQ(two, 2u);
  EXPECT_NEAR(other, 1.2816 * std::sqrt(0.05 * 0.05 + 0.1 * 0.1 + 0.09 * 0.09), 1e-3);
}

TEST(Predict, SaysWhatIsNotModelled) {
  const auto missing = [](const char* mesh, const StepOptions& options) {
    return not_modelled(small_model(), Mesh::parse(mesh), options).size();
  };
  EXPECT_EQ(missing("1", {}), 2u);
  EXPECT_EQ(missing("pp2", {}), 3u);
  EXPECT_EQ(missing("dp2", {}), 4u) << "sums beside the backward";
  EXPECT_EQ(missing("dp2", {.overlap = {.reduce = false, .gather = false}}), 3u);
}

// A quarter of a message goes over the NICs and all of it over the node's links.
TEST(Predict, ScatteredSendsTakeLessTimeBetweenNodes) {
  Mesh mesh = Mesh::parse("pp4.tp4");
  mesh.set_ranks_per_node(4);
  Machine machine = find_machine("a100x8");
  machine.ranks_per_node = 4;
  set_field(machine, "nic_gb_per_s", "1");
  Stack stack = find_stack("kernels");
  StepOptions options{.micro_batches = 4};
  options.dtype = DType::bf16;
  const double whole = predict(small_model(), mesh, options, machine, stack).step_s;
  stack.scatter_sends = true;
  EXPECT_LT(predict(small_model(), mesh, options, machine, stack).step_s, whole);
  options.sequence_parallel = true;
  const double parts = predict(small_model(), mesh, options, machine, stack).step_s;
  stack.scatter_sends = false;
  EXPECT_EQ(predict(small_model(), mesh, options, machine, stack).step_s, parts)
      << "nobody holds more than a part";
}

TEST(Predict, FasterMachinesNeverTakeLonger) {
  StepOptions options{.micro_batches = 4};
  options.dtype = DType::bf16;
  Mesh mesh = Mesh::parse("dp2.pp2.tp4");
  mesh.set_ranks_per_node(8);
  const Machine base = find_machine("h100x8");
  const double before = predict(small_model(), mesh, options, base, {}).step_s;
  for (const char* field : {"bf16_tflops", "memory_gb_per_s", "nic_gb_per_s", "nics_per_node"}) {
    Machine faster = base;
    set_field(faster, field, "20000");
    EXPECT_LE(predict(small_model(), mesh, options, faster, {}).step_s, before) << field;
  }
}

TEST(Predict, MemoryIsThePlansAndWhatLibrariesTakeBeside) {
  const Machine machine = find_machine("a100x8");
  const Prediction p = predict(small_model(), Mesh::parse("1"), {}, machine, {});
  EXPECT_GT(p.memory.planned, 0);
  EXPECT_EQ(p.memory.context, std::llround(1e9 * machine.context_gb));
  EXPECT_GT(p.memory.total(), p.memory.planned + p.memory.context);
}

}  // namespace
}  // namespace mb
