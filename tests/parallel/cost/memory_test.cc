#include "parallel/cost/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/plan/liveness.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

ModelConfig model_of(std::initializer_list<std::pair<const char*, const char*>> fields) {
  ModelConfig model = find_model("gpt-1m");
  for (const auto& [field, value] : fields) set_field(model, field, value);
  return model;
}

StepMemory memory_under(const Plan& plan, const Stack& stack) {
  return memory_of(plan, find_machine("a100x8"), stack);
}

std::int64_t gradient_bytes(const Plan& plan) {
  return memory_peak(plan.programs[0]).class_peak[static_cast<int>(MemoryClass::gradient)];
}

TEST(Memory, HoldsAThirdOfTheMostOfItsStacksFragmentation) {
  const Plan plan = plan_step(find_model("gpt-1m"), Mesh::parse("1"), {});
  const StepMemory memory = memory_under(plan, {.fragmentation = 0.3});
  const auto allocated = static_cast<double>(memory.allocated());
  EXPECT_NEAR(static_cast<double>(memory.fragmentation), 0.3 * allocated, 1);
  EXPECT_NEAR(static_cast<double>(memory.reserved()), 1.1 * allocated, 1);
}

TEST(Memory, IsThePlansUnderAStackThatKeepsNothing) {
  StepOptions options{.micro_batches = 4, .dtype = DType::bf16};
  const Plan plan = plan_step(model_of({}), Mesh::parse("dp2.pp2"), options);
  const StepMemory memory = memory_under(plan, {});
  EXPECT_EQ(memory.stack, 0);
  EXPECT_EQ(memory.planned, std::max(memory_peak(plan.programs[0]).total_bytes,
                                     memory_peak(plan.programs[1]).total_bytes));
  EXPECT_LT(memory.allocated(), memory.reserved());
  EXPECT_LT(memory.device(), memory.total());
}

// Many words and few layers: the peak is at the head, whose gradient has a buffer then.
TEST(Memory, HasABufferForEachShapeOfWeights) {
  const ModelConfig model = model_of({{"vocabulary", "65536"}, {"layers", "4"}});
  StepOptions options{.micro_batch = 4, .dtype = DType::bf16};
  const Plan plan = plan_step(model, Mesh::parse("1"), options);
  const Program& program = plan.programs[0];
  ASSERT_EQ(plan.site(program.instructions[memory_peak(program).at]), "head");
  const std::int64_t h = model.hidden, layer = 2 * (3 * h * h + h * h + 2 * h * model.ffn),
                     head = 2 * h * 65536;
  EXPECT_EQ(memory_under(plan, {.transformer_engine = true}).stack, layer + head);
}

TEST(Memory, HoldsLogitsInFp32WhileTheLossRuns) {
  const ModelConfig model = model_of({{"vocabulary", "65536"}, {"layers", "2"}});
  StepOptions options{.micro_batch = 16, .dtype = DType::bf16};
  const Plan plan = plan_step(model, Mesh::parse("1"), options);
  const std::int64_t rows = 16 * model.sequence, most = 3 * rows * 65536 * 4;
  // The Plan's own peak is a little later, where the head's gradient is computed.
  const std::int64_t more = memory_under(plan, {.loss_copies = 3}).stack;
  EXPECT_LE(more, most);
  EXPECT_GT(more, most - 2 * rows * model.hidden * 4);
}

TEST(Memory, HoldsGradientsAsDeepSpeedDoes) {
  for (const bool fp16 : {true, false}) {
    StepOptions options{.micro_batch = 4, .dtype = fp16 ? DType::fp16 : DType::bf16};
    const Plan plan = plan_step(model_of({}), Mesh::parse("1"), options);
    const std::int64_t half = gradient_bytes(plan) / 2;
    EXPECT_EQ(memory_under(plan, {.deepspeed_gradients = true}).stack, fp16 ? -half : half);
  }
}

// Context ranks: each layer's result of attention once more.
TEST(Memory, KeepsResultsOfRingAttentionTwice) {
  StepOptions options{.dtype = DType::bf16};
  const Plan plan = plan_step(model_of({{"layers", "4"}}), Mesh::parse("cp2"), options);
  const ModelConfig model = model_of({});
  const std::int64_t h = model.hidden, layer = 2 * (3 * h * h + h * h + 2 * h * model.ffn),
                     result = 2 * model.sequence / 2 * h;
  const std::int64_t more = memory_under(plan, {.transformer_engine = true}).stack;
  EXPECT_GE(more, layer + 3 * result);
  EXPECT_LE(more, layer + 4 * result + 2 * h * padded_vocabulary(model, 1));
}

// The first of four stages has four micro-batches on their way, of which the oldest is just back.
TEST(Memory, KeepsWhatAStageHasSentUntilItsGradientComes) {
  StepOptions options{.micro_batches = 8, .dtype = DType::bf16};
  options.recompute = Recompute::full;
  const ModelConfig model = model_of({{"layers", "8"}});
  const Plan plan = plan_step(model, Mesh::parse("pp4"), options);
  const std::int64_t sent = model.sequence * model.hidden * 2;
  const std::int64_t more = memory_under(plan, {.keeps_sent = true}).stack;
  EXPECT_GE(more, 3 * sent);
  EXPECT_LE(more, 4 * sent);
}

TEST(Memory, CountsBuffersOfEveryCommunicator) {
  const Machine machine = find_machine("a100x8");
  const std::int64_t one = library_bytes(Mesh::parse("1"), machine);
  EXPECT_EQ(one, std::llround(1e9 * machine.library_gb));
  const std::int64_t dp = library_bytes(Mesh::parse("dp8"), machine),
                     three = library_bytes(Mesh::parse("dp2.cp2.tp2"), machine);
  EXPECT_EQ((dp - one) * 2, three - one) << "that of all ranks, and one for each axis";
  EXPECT_EQ(library_bytes(Mesh::parse("dp8"), find_machine("cpu")), 0);
}

}  // namespace
}  // namespace mb
