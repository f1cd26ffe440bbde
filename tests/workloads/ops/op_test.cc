#include "workloads/ops/op.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

TEST(Op, MatmulCountsTwoFlopsPerProduct) {
  EXPECT_EQ(flops({Matmul{3, 5, 7, false, false, false, false}}), 210);
}

TEST(Op, AttentionCountsHalfOfTheSquareAndItsBackwardTwiceThat) {
  // 2 products * 2 FLOPs * batch 2 * heads 3 * sequence 4^2 / 2 * head_dim 5.
  EXPECT_EQ(flops({Attention{2, 4, 3, 1, 5}}), 960);
  EXPECT_EQ(flops({AttentionGradient{2, 4, 3, 1, 5}}), 1920);
}

TEST(Op, StepsOfARingCountWhatWholeAttentionCounts) {
  for (int ways : {1, 2, 4}) {
    for (bool zigzag : {false, true}) {
      double forward = 0, backward = 0;
      for (int step = 0; step < ways; ++step) {
        const TokenSplit split{ways, zigzag};
        forward += ways * flops({RingAttention{2, 16, 4, 2, 8, split, step}});
        backward += ways * flops({RingAttentionGradient{2, 16, 4, 2, 8, split, step}});
      }
      EXPECT_EQ(forward, flops({Attention{2, 16, 4, 2, 8}}));
      EXPECT_EQ(backward, flops({AttentionGradient{2, 16, 4, 2, 8}}));
    }
  }
}

TEST(Op, ZigZagStepsOfARingCountTheSame) {
  const double first = flops({RingAttention{2, 16, 4, 2, 8, {4, true}, 0}});
  for (int step : {1, 2, 3}) {
    EXPECT_EQ(flops({RingAttention{2, 16, 4, 2, 8, {4, true}, step}}), first);
  }
  EXPECT_EQ(flops({RingAttention{2, 16, 4, 2, 8, {4}, 1}}), 1.5 * first);
  EXPECT_EQ(flops({RingAttention{2, 16, 4, 2, 8, {4}, 3}}), 0.5 * first);
}

TEST(Op, ExpertsCountTheRowsThatComeIfAllGetTheSame) {
  const ExpertRows rows{.sources = 2, .experts = 4, .buffer_rows = 100, .rows = 30};
  for (auto product :
       {ExpertProduct::forward, ExpertProduct::input_gradient, ExpertProduct::weight_gradient}) {
    EXPECT_EQ(flops({ExpertMatmul{rows, 5, 7, product}}), 2 * 30 * 5 * 7);
  }
  const double operands = 30 * (5 + 7), weights = 4 * 5 * 7, counts = 8;
  EXPECT_EQ(bytes_moved({ExpertMatmul{rows, 5, 7, ExpertProduct::forward}, DType::bf16}),
            2 * (operands + weights) + 4 * counts);
  EXPECT_EQ(
      bytes_moved({ExpertMatmul{rows, 5, 7, ExpertProduct::weight_gradient, true}, DType::bf16}),
      2 * operands + 4 * 2 * weights + 4 * counts);
}

TEST(Op, BytesOfARingStepAreItsRows) {
  // q and out [4, 2 * 3], kv [4, 2 * 3], lse [4, 2]; later steps read out and lse too.
  EXPECT_EQ(bytes_moved({RingAttention{1, 8, 2, 1, 3, {2, true}, 0}, DType::bf16}),
            2 * 3 * 24 + 4 * 8);
  EXPECT_EQ(bytes_moved({RingAttention{1, 8, 2, 1, 3, {2, true}, 1}, DType::bf16}),
            2 * 4 * 24 + 4 * 16);
}

TEST(Op, RowOperationsCountNoFlops) {
  EXPECT_EQ(flops({Gelu{4, 4}}), 0);
  EXPECT_EQ(flops({UpdateParameters{.slice = {.n = 10}, .moments = true}}), 0);
}

TEST(Op, FlopsOfALargeMatmulDoNotOverflow) {
  EXPECT_EQ(flops({Matmul{1 << 22, 1 << 22, 1 << 22, false, false, false, false}}), 0x1p67);
}

TEST(Op, BytesOfAMatmulAreItsOperandsOnce) {
  Matmul op{3, 5, 7, false, false, false, false};
  EXPECT_EQ(bytes_moved({op}), 4 * (21 + 35 + 15));
  op.bias = op.accumulate = true;
  EXPECT_EQ(bytes_moved({op, DType::bf16}), 2 * (21 + 35 + 5 + 2 * 15));
}

TEST(Op, BytesCountUpdatedOperandsTwice) {
  EXPECT_EQ(bytes_moved({CrossEntropyGradient{2, 10, 9}}), 4 * (2 * 20 + 4) + 4 * 2 + 8);
  EXPECT_EQ(bytes_moved({BiasGradient{3, 5, false}}), 4 * 20);
  EXPECT_EQ(bytes_moved({BiasGradient{3, 5, true}}), 4 * 25);
}

TEST(Op, BytesBeside16BitParametersAreThoseOfFp32WhereMainIsKept) {
  EXPECT_EQ(bytes_moved({BiasGradient{3, 5, true}, DType::bf16}), 2 * 15 + 4 * 10);
  Matmul gradient{.m = 3, .n = 5, .k = 7, .transpose_a = true, .accumulate = true};
  gradient.to_main = true;
  EXPECT_EQ(bytes_moved({gradient, DType::fp16}), 2 * (21 + 35) + 4 * 30);
  EXPECT_EQ(bytes_moved({Norm{NormKind::layer, 3, 5, 0}, DType::bf16}), 2 * (30 + 10) + 4 * 6);
  EXPECT_EQ(bytes_moved({Cast{10, false}, DType::bf16}), 60);
  UpdateParameters update{.slice = {.n = 10}, .moments = true};
  EXPECT_EQ(bytes_moved({update}), 4 * 70 + 8 * 4);
  EXPECT_EQ(bytes_moved({update, DType::bf16}), 4 * 70 + 2 * 10 + 8 * 4);
}

TEST(Op, BytesOfDividedTokensAreThoseOfTheRowsHere) {
  const TokenSplit split{2, true, 4};
  EXPECT_EQ(bytes_moved({LoadBatch{2, 16, true, true, split}}), 2 * 4 * 4);
  // 4 rows are read and written, and 4 of the positions read.
  EXPECT_EQ(bytes_moved({AddPositions{2, 16, 3, split}}), 4 * 3 * (4 + 8));
  EXPECT_EQ(bytes_moved({AddPositions{2, 16, 3}}), 4 * 3 * (16 + 64));
}

TEST(Op, BytesOfAnEmbeddingLeaveOutRowsThatNoTokenCanName) {
  EXPECT_EQ(bytes_moved({Embedding{2, 8, 1000}}), 4 * (2 * 8 + 2 * 8) + 4 * 2);
}

TEST(Op, TextNamesTheShape) {
  EXPECT_EQ(name_of(Op{Matmul{}}), "matmul");
  EXPECT_EQ(to_text({Matmul{512, 1536, 384, false, true, true, false}}),
            "matmul 512x1536x384 nt bias");
  EXPECT_EQ(to_text({Matmul{2, 3, 4, true, false, false, true}, DType::fp64}),
            "matmul 2x3x4 tn accumulate fp64");
  EXPECT_EQ(to_text({Norm{NormKind::rms, 8, 16, 1e-5f}}), "norm rms 8x16");
  EXPECT_EQ(to_text({Attention{2, 128, 8, 2, 64}}), "attention 2x128 heads 8/2x64");
  EXPECT_EQ(to_text({RingAttention{2, 128, 8, 2, 64, {4, true}, 1, {0.1, 0}}}),
            "ring_attention 2x128 heads 8/2x64 dropout 0.1 split 4z/1 step 1");
  EXPECT_EQ(to_text({HeadShuffle{64, 4, 8, 0, 16, true}}),
            "head_shuffle 64 heads 8/0x16 to 4 inverse");
  EXPECT_EQ(to_text({TokenShuffle{2, 64, 12, {4, true}, false}}),
            "token_shuffle 2x64x12 split 4z/1");
  const Routing routing{.batch = 2, .sequence = 64, .experts = 8, .top = 2, .capacity = 20};
  EXPECT_EQ(to_text({Route{routing}}), "route 128 top 2 of 8 capacity 20");
  EXPECT_EQ(to_text({Dispatch{routing, 32, true}}),
            "dispatch_gradient 128 top 2 of 8 capacity 20 32");
  EXPECT_EQ(to_text({ExpertMatmul{
                {.experts = 4, .rows = 256, .fixed = 40}, 32, 16, ExpertProduct::input_gradient}}),
            "expert_matmul 256 to 4 fixed 32x16 input_gradient");
  EXPECT_EQ(to_text({VocabularyMax{4, 128, 97}}), "vocabulary_max 4x128 of 97");
  EXPECT_EQ(to_text({StartStep{}}), "start_step");
  EXPECT_EQ(to_text({LoadBatch{2, 16}}), "load_batch 2x16");
  EXPECT_EQ(to_text({LoadBatch{2, 16, true, true, {2, true, 4}}}), "load_batch 2x16 split 2z/4");
  EXPECT_EQ(to_text({DropoutRows{8, 3, {0.1, 5}, 1, 8, {}}}), "dropout_rows 8x3 dropout 0.1");
  EXPECT_EQ(to_text({UpdateParameters{.slice = {5, 4}, .moments = true}, DType::bf16}),
            "update_parameters 5 of 4 adamw bf16");
  EXPECT_EQ(to_text({Cast{9, true}, DType::fp16}), "cast 9 to main fp16");
}

}  // namespace
}  // namespace mb
