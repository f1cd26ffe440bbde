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

// What a product reads is rounded in a pass of its own: 2 bytes read, 1 written in either layout.
TEST(OpCost, Fp8MultipliesFasterRoundsOnceAndAttendsAsBefore) {
  const Stack fp8{.name = "fp8", .fp8_matmul = true};
  const Matmul matmul{8192, 8192, 8192};
  const double rounding = 4.0 * 8192 * 8192 / (1000e9 * 0.5);
  EXPECT_DOUBLE_EQ(seconds(matmul, {}), 2 * (seconds(matmul, fp8) - rounding));
  Matmul gradient = matmul;
  gradient.to_main = true;
  EXPECT_DOUBLE_EQ(seconds(gradient, {}), 2 * seconds(gradient, fp8)) << "both are rounded already";
  EXPECT_DOUBLE_EQ(seconds(kAttention, {}), seconds(kAttention, fp8));
}

double bytes_of(const std::vector<Kernel>& kernels) {
  double bytes = 0;
  for (const Kernel& kernel : kernels) bytes += kernel.bytes;
  return bytes;
}

// A product in 16 bits, then read again and added to fp32: 2 written, 2 + 4 read, 4 written.
TEST(OpCost, EagerGradientsAreAddedByAKernelOfTheirOwn) {
  const Stack eager{.name = "eager", .eager = true};
  const Matmul gradient{.m = 64, .n = 32, .k = 128, .transpose_a = true, .to_main = true};
  const auto kernels = kernels_of({gradient, DType::bf16}, eager);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_DOUBLE_EQ(kernels[0].flops, flops({gradient, DType::bf16}));
  EXPECT_DOUBLE_EQ(bytes_of(kernels), 2 * (64 * 128 + 128 * 32 + 64 * 32) + 10.0 * 64 * 32);
  const Matmul forward{.m = 64, .n = 32, .k = 128, .transpose_b = true};
  EXPECT_EQ(kernels_of({forward, DType::bf16}, eager).size(), 1u);
}

// Logits to fp32 (6), maximum (4), difference (8), exponential (8), sum (4), quotient (8); the
// gradient scales (8) and rounds (6): 52 bytes of each logit.
TEST(OpCost, EagerLossPassesOverTheLogitsInFp32) {
  const Stack eager{.name = "eager", .eager = true};
  double bytes = 0;
  for (const OpKind& kind :
       {OpKind(VocabularyMax{64, 1000, 1000}), OpKind(VocabularySums{64, 1000, 1000}),
        OpKind(CrossEntropyGradient{64, 1000, 1000})})
    bytes += bytes_of(kernels_of({kind, DType::bf16}, eager));
  EXPECT_DOUBLE_EQ(bytes, 52.0 * 64 * 1000);
}

TEST(OpCost, EagerKernelsNeverMoveLess) {
  const Stack eager{.name = "eager", .eager = true};
  for (const OpKind& kind :
       {OpKind(NormGradient{NormKind::layer, 64, 128, true, true}),
        OpKind(BiasGradient{64, 128, true}), OpKind(EmbeddingGradient{64, 128, 1000, true}),
        OpKind(Add{.rows = 64, .n = 128, .bias = false})}) {
    const Op op{kind, DType::bf16};
    EXPECT_GE(bytes_of(kernels_of(op, eager)), 0.99 * bytes_moved(op)) << name_of(op);
    EXPECT_EQ(kernels_of(op, {}).size(), 1u);
  }
}

Machine in_waves() {
  Machine machine = round_machine();
  machine.wave_sms = 100;
  return machine;
}
double seconds_in_waves(const Matmul& matmul, double fill_k = 0) {
  Machine machine = in_waves();
  machine.tile_fill_k = fill_k;
  return op_seconds({matmul, DType::bf16}, machine, {});
}

TEST(OpCost, AWaveOfWholeTilesTakesWhatItsFlopsTake) {
  const Matmul whole{.m = 10 * 256, .n = 10 * 128, .k = 4096};
  EXPECT_DOUBLE_EQ(seconds_in_waves(whole), seconds(whole, {}));
  EXPECT_DOUBLE_EQ(seconds_in_waves(whole, 4096), 2 * seconds(whole, {}))
      << "to start and end them";
}

// 40 x 21 tiles of 64 x 64, which reach 0.7 of the rate, are nine waves of 100 SMs; 10 x 11 of
// 256 x 128 would be two, each eight times as long.
TEST(OpCost, ATileMoreThanAWaveIsAnother) {
  const Matmul more{.m = 10 * 256, .n = 10 * 128 + 1, .k = 1024};
  EXPECT_DOUBLE_EQ(seconds_in_waves(more), 9.0 * 100 * 2 * 64 * 64 * 1024 / 0.7 / (100e12 * 0.8));
}

// 4 x 4 tiles of 64 x 64, each by four SMs: 64 of 100 SMs are at work, then four sums in fp32.
TEST(OpCost, FewTilesDivideTheSum) {
  const Matmul deep{.m = 256, .n = 256, .k = 1 << 20};
  EXPECT_DOUBLE_EQ(seconds_in_waves(deep),
                   100 * 2 * 64 * 64 * (deep.k / 4.0) / 0.7 / (100e12 * 0.8) +
                       4.0 * 4 * 256 * 256 / (1000e9 * 0.5));
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

TEST(Machine, TakesTheAlgorithmsAndProtocolsOfNcclAlone) {
  Machine machine = find_machine("h100x8");
  machine.algorithm = "nvls";
  EXPECT_NE(message_of([&] { check_machine(machine); }).find("give auto, ring or tree"),
            std::string::npos);
  machine.algorithm = "tree", machine.protocol = "ll64";
  EXPECT_NE(message_of([&] { check_machine(machine); }).find("give auto, ll, ll128 or simple"),
            std::string::npos);
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
