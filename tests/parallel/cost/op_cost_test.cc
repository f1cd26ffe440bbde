#include "parallel/cost/op_cost.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

Machine round_machine() {
  Machine machine;
  machine.name = "round";
  machine.bf16_tflops = 100;
  machine.fp8_tflops = 200;
  machine.matmul_efficiency = 0.8;
  machine.attention_efficiency = 0.4;
  machine.memory_gb_per_s = 1000;
  machine.memory_efficiency = 0.5;
  machine.launch_us = 0;
  return machine;
}

const Attention kAttention{.batch = 2, .sequence = 1024, .heads = 8, .kv_heads = 8, .head_dim = 64};
Stack unfused() { return {.name = "unfused", .fused_attention = false}; }

double seconds(const OpKind& kind, const Stack& stack) {
  return op_seconds({kind, DType::bf16}, round_machine(), stack);
}

TEST(OpCost, FusedAttentionTakesTheLowerTriangle) {
  const double triangle = 2.0 * 2 * 8 * 1024 * 1024 * 64;
  EXPECT_DOUBLE_EQ(seconds(kAttention, {}), triangle / (100e12 * 0.4));
  const AttentionGradient gradient{2, 1024, 8, 8, 64};
  EXPECT_DOUBLE_EQ(seconds(gradient, {}), 2.5 * triangle / (100e12 * 0.4))
      << "five products for two";
}

// Scores of 2 x 8 x 1024 x 1024 in 16 bits: each product writes or reads them once beside three
// vectors of 2 x 8 x 1024 x 64, softmax reads and writes them.
TEST(OpCost, UnfusedAttentionMovesItsScores) {
  const double scores = 2.0 * 2 * 8 * 1024 * 1024, vectors = 2.0 * 2 * 8 * 1024 * 64;
  const auto kernels = kernels_of({kAttention, DType::bf16}, unfused());
  ASSERT_EQ(kernels.size(), 4u);
  double bytes = 0, work = 0;
  for (const Kernel& kernel : kernels) bytes += kernel.bytes, work += kernel.flops;
  EXPECT_DOUBLE_EQ(bytes, 4 * scores + 2 * 2 * vectors + 2 * vectors);
  EXPECT_DOUBLE_EQ(work, 2 * flops({kAttention, DType::bf16})) << "all of the square";
}

TEST(OpCost, DropoutOfScoresIsAKernelMore) {
  Attention dropped = kAttention;
  dropped.dropout.probability = 0.1;
  EXPECT_EQ(kernels_of({dropped, DType::bf16}, unfused()).size(), 5u);
  EXPECT_EQ(kernels_of({dropped, DType::bf16}, {}).size(), 1u);
}

TEST(OpCost, SoftmaxOfHeadsThatDoNotDivideByFourRunsInFp32) {
  Attention odd = kAttention;
  odd.batch = 1, odd.heads = odd.kv_heads = 2;
  EXPECT_EQ(kernels_of({odd, DType::bf16}, unfused()).size(), 4u + 4);
}

TEST(OpCost, Fp8MultipliesFasterAndAttendsAsBefore) {
  const Stack fp8{.name = "fp8", .fp8_matmul = true};
  const Matmul matmul{8192, 8192, 8192};
  EXPECT_DOUBLE_EQ(seconds(matmul, {}), 2 * seconds(matmul, fp8));
  EXPECT_DOUBLE_EQ(seconds(kAttention, {}), seconds(kAttention, fp8));
}

TEST(OpCost, SharesSlowWhatTheyAreOf) {
  const Matmul matmul{8192, 8192, 8192};
  const Norm norm{.kind = NormKind::rms, .rows = 4096, .n = 4096, .epsilon = 1e-5f};
  const Stack half{.name = "half", .compute_share = 0.5, .memory_share = 0.25};
  EXPECT_DOUBLE_EQ(seconds(matmul, half), 2 * seconds(matmul, {}));
  EXPECT_DOUBLE_EQ(seconds(norm, half), 4 * seconds(norm, {}));
}

TEST(Stack, IsReadAsItIsPrinted) {
  for (const Stack& stack : stacks()) EXPECT_EQ(stack_from_json(to_json(stack), "test"), stack);
}

TEST(Stack, RefusesWhatCannotBe) {
  Stack stack = find_stack("kernels");
  const auto refused = [&](const char* field, const char* value) {
    return message_of([&] { set_field(stack, field, value); });
  };
  EXPECT_NE(refused("stack.host_us", "-1").find("stack.host_us=-1: give a number of at least 0"),
            std::string::npos);
  EXPECT_NE(refused("compute_share", "0").find("above 0"), std::string::npos);
  EXPECT_NE(refused("fp8_matmul", "on").find("give true or false"), std::string::npos);
  EXPECT_NE(refused("stack.host", "1").find("did you mean"), std::string::npos);
  EXPECT_NE(message_of([] { stack_from_json("{\"host_us\": 3}", "f"); }).find("name is missing"),
            std::string::npos);
}

TEST(Machine, RefusesWhatCannotBe) {
  Machine machine = find_machine("h100x8");
  const auto refused = [&](const char* field, const char* value) {
    return message_of([&] { set_field(machine, field, value); });
  };
  EXPECT_NE(refused("machine.oversubscription", "0.5").find("at least 1"), std::string::npos);
  EXPECT_NE(refused("machine.nics_per_node", "2.5").find("whole number"), std::string::npos);
  EXPECT_NE(refused("machine.nic_efficiency", "1.5").find("at most 1"), std::string::npos);
  EXPECT_NE(message_of([] {
              machine_from_json("{\"name\": \"x\", \"memory_gb\": 1}", "f");
            }).find("machine.fp32_tflops=0: give a number above 0"),
            std::string::npos);
  for (const Machine& known : machines())
    EXPECT_EQ(machine_from_json(to_json(known), "test"), known);
}

TEST(Machine, LosesItsCurvesWithItsLinks) {
  Machine machine = find_machine("h100x8");
  set_field(machine, "machine.nic_gb_per_s", "25");
  EXPECT_EQ(machine.curves, "h100_sxm");
  set_field(machine, "machine.link_gb_per_s", "100");
  EXPECT_EQ(machine.curves, "none") << "else a link's rate would have no effect";
}

}  // namespace
}  // namespace mb
