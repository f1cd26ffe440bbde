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

TEST(Op, RowOperationsCountNoFlops) {
  EXPECT_EQ(flops({Gelu{4, 4}}), 0);
  EXPECT_EQ(flops({AdamW{10, 0, 0, 0, 0, 0, 0}}), 0);
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
  EXPECT_EQ(bytes_moved({AdamW{10, 0, 0, 0, 0, 0, 0}}), 4 * 70 + 16);
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
  EXPECT_EQ(to_text({VocabularyMax{4, 128, 97}}), "vocabulary_max 4x128 of 97");
  EXPECT_EQ(to_text({Zero{9}}), "zero 9");
  EXPECT_EQ(to_text({LoadBatch{2, 16}}), "load_batch 2x16");
  EXPECT_EQ(to_text({LoadBatch{2, 16, true, true, {2, true, 4}}}), "load_batch 2x16 split 2z/4");
  EXPECT_EQ(to_text({DropoutRows{8, 3, {0.1, 5}, 1, 8, {}}}), "dropout_rows 8x3 dropout 0.1");
  EXPECT_EQ(to_text({UpdateParameters{.slice = {5, 4}, .moments = true}, DType::bf16}),
            "update_parameters 5 of 4 adamw bf16");
  EXPECT_EQ(to_text({Cast{9, true}, DType::fp16}), "cast 9 to main fp16");
}

}  // namespace
}  // namespace mb
