// Every operation in bf16 and fp16 against fp64 on the same inputs: what is stored in 16 bits may
// be off by its rounding, what is stored in fp32 by that of fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/reference.h"
#include "workloads/base/error.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::Element;
using testing::garbage;
using testing::in_main;
using testing::indices;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::scalars;
using testing::with_loss_scale;
using Values = std::vector<double>;

Operand garbage_main(std::int64_t count) { return in_main(garbage(count)); }

std::vector<Operand> stored_as(std::vector<Operand> operands, DType dtype) {
  for (Operand& operand : operands) {
    if (operand.element == Element::same) operand.values = testing::rounded(operand.values, dtype);
    if (operand.element == Element::main)
      operand.values = testing::rounded(operand.values, DType::fp32);
  }
  return operands;
}

// Half of the distance of two neighbours, of 1 and the next.
double half_ulp(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

void expect_within(const Values& actual, const Values& expected, double relative, double absolute,
                   const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double size = std::abs(expected[i]), error = std::abs(actual[i] - expected[i]);
    const bool close = error <= relative * size + absolute + 2e-5 * std::max(1.0, size);
    ASSERT_TRUE(close) << what << "[" << i << "] is " << actual[i] << ", not " << expected[i];
  }
}

// GPUs round probabilities, and the gradient of scores, to 16 bits between two products; rows of
// values in these tests are a few units large.
double between_products(const Backend& backend, const OpKind& op) {
  const bool attends = std::holds_alternative<Attention>(op) ||
                       std::holds_alternative<AttentionGradient>(op) ||
                       std::holds_alternative<RingAttention>(op) ||
                       std::holds_alternative<RingAttentionGradient>(op);
  return attends && !backend.kernels ? 4 * half_ulp(backend.dtype) : 0;
}

void check(const OpKind& op, const std::vector<Operand>& reads, const std::vector<Operand>& writes,
           const OpContext& context = {}) {
  const Backend reference = testing::backends().front();
  for (const Backend& backend : testing::half_backends()) {
    const auto in = stored_as(reads, backend.dtype), out = stored_as(writes, backend.dtype);
    const auto expected = run_on(reference, op, context, in, out);
    const auto actual = run_on(backend, op, context, in, out);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const bool same = writes[i].element == Element::same;
      expect_within(actual[i], expected[i], same ? half_ulp(backend.dtype) : 0,
                    between_products(backend, op),
                    cat(backend.text(), " ", to_text({op}), " output ", i));
    }
  }
}

// GPUs load and store 16 bytes of a row at a time where it has at least 512 and begins at a
// multiple of them: rows of an odd length do so in turn, and where a length is no multiple,
// elements are left.
class PrecisionOfRows : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lengths, PrecisionOfRows,
                         ::testing::Values(1, 37, 75, 264, 513, 2056, 4101));

TEST_P(PrecisionOfRows, OfEmbeddingsAndPositions) {
  const std::int64_t batch = 2, sequence = 3, n = GetParam(), rows = batch * sequence,
                     vocabulary = 5;
  const Operand tokens = indices({0, 4, 2, 2, 4, 2}), dy{noise(2, rows * n)};
  check(Embedding{rows, n, vocabulary}, {tokens, {noise(1, vocabulary * n)}}, {garbage(rows * n)});
  check(AddPositions{batch, sequence, n}, {{noise(1, sequence * n)}}, {{noise(3, rows * n)}});
  for (bool accumulate : {false, true}) {
    check(EmbeddingGradient{rows, n, vocabulary, accumulate}, {tokens, dy},
          {in_main({noise(4, vocabulary * n)})});
    check(PositionGradient{batch, sequence, n, accumulate}, {dy},
          {in_main({noise(4, sequence * n)})});
  }
}

TEST_P(PrecisionOfRows, OfNorms) {
  const std::int64_t rows = 5, n = GetParam();
  const Operand x{noise(1, rows * n, 3)}, w{noise(2, n)}, b{noise(3, n)}, dy{noise(4, rows * n)};
  const Operand rstd = in_main({Values(rows, 0.6)}), mean = in_main({noise(5, rows)}),
                residual{noise(6, rows * n)};
  check(Norm{NormKind::rms, rows, n, 1e-5f}, {x, w}, {garbage(rows * n), garbage_main(rows)});
  check(Norm{NormKind::layer, rows, n, 1e-5f}, {x, w, b},
        {garbage(rows * n), garbage_main(rows), garbage_main(rows)});
  for (bool accumulate : {false, true}) {
    const std::vector<Operand> writes = {garbage(rows * n), in_main({noise(7, n)}),
                                         in_main({noise(8, n)})};
    check(NormGradient{NormKind::rms, rows, n, true, accumulate}, {dy, x, w, rstd, residual},
          {writes[0], writes[1]});
    check(NormGradient{NormKind::layer, rows, n, false, accumulate}, {dy, x, w, rstd, mean},
          writes);
  }
}

TEST(Precision, OfMatmuls) {
  const std::int64_t m = 19, n = 35, k = 70;
  const Operand a{noise(1, m * k)}, b{noise(2, k * n)}, bias{noise(3, n)};
  for (int flags = 0; flags < 16; ++flags) {
    Matmul op{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0};
    check(op, {a, b, bias}, {{noise(4, m * n)}});
    op.to_main = true;
    check(op, {a, b, bias}, {in_main({noise(4, m * n)})});
  }
}

class PrecisionOfAttention : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sequences, PrecisionOfAttention, ::testing::Values(70, 300));

TEST_P(PrecisionOfAttention, AndRotary) {
  const std::int64_t batch = 2, sequence = GetParam(), heads = 4, kv_heads = 2, head_dim = 8;
  const std::int64_t rows = batch * sequence, width = (heads + 2 * kv_heads) * head_dim;
  const Operand qkv{noise(1, rows * width, 2)}, dout{noise(2, rows * heads * head_dim)};
  const Attention op{batch, sequence, heads, kv_heads, head_dim};
  const std::vector<Operand> outputs = {garbage(rows * heads * head_dim),
                                        garbage_main(rows * heads)};
  check(op, {qkv}, outputs);
  const auto saved = run_on(testing::backends().front(), op, {}, {qkv}, outputs);
  check(AttentionGradient{batch, sequence, heads, kv_heads, head_dim},
        {dout, qkv, {saved[0]}, in_main({saved[1]})}, {garbage(rows * width)});
  for (bool inverse : {false, true})
    check(Rotary{batch, sequence, heads, kv_heads, head_dim, 500.0f, inverse}, {}, {qkv});
}

TEST(Precision, OfDroppedAttention) {
  const std::int64_t rows = 70;
  const Operand qkv{noise(1, rows * 4 * 8, 2)}, dout{noise(2, rows * 2 * 8)};
  const Attention op{1, rows, 2, 1, 8, {0.2, 3}};
  const std::vector<Operand> outputs = {garbage(rows * 2 * 8), garbage_main(rows * 2)};
  check(op, {qkv}, outputs);
  const auto saved = run_on(testing::backends().front(), op, {}, {qkv}, outputs);
  check(AttentionGradient{1, rows, 2, 1, 8, {0.2, 3}}, {dout, qkv, {saved[0]}, in_main({saved[1]})},
        {garbage(rows * 4 * 8)});
}

TEST(Precision, OfRings) {
  const std::int64_t batch = 2, sequence = 40, heads = 4, kv_heads = 2, head_dim = 8, rows = 40;
  const std::int64_t width = (heads + 2 * kv_heads) * head_dim, kv_size = rows * 2 * 2 * head_dim;
  const Operand qkv{noise(1, rows * width, 2)}, kv{noise(2, kv_size, 2)},
      dout{noise(3, rows * heads * head_dim)};
  for (int index : {0, 1}) {
    const OpContext context{.context_index = index};
    std::vector<Operand> merged = {garbage(rows * heads * head_dim), garbage_main(rows * heads)};
    for (int step : {0, 1}) {
      const RingAttention op{batch, sequence, heads, kv_heads, head_dim, {2, true}, step};
      check(op, {qkv, kv}, merged, context);
      const auto saved = run_on(testing::backends().front(), op, context, {qkv, kv}, merged);
      merged = {{saved[0]}, in_main({saved[1]})};
      check(RingAttentionGradient{batch, sequence, heads, kv_heads, head_dim, {2, true}, step},
            {dout, qkv, kv, merged[0], merged[1]}, {{noise(4, rows * width)}, {noise(5, kv_size)}},
            context);
    }
  }
}

TEST(Precision, OfMovesBetweenRanks) {
  const Operand qkv{noise(1, 16 * 8 * 6)};
  check(PackKv{16, 4, 2, 6, false}, {qkv}, {garbage(16 * 4 * 6)});
  check(PackKv{16, 4, 2, 6, true}, {{noise(2, 16 * 4 * 6)}}, {qkv});
  for (bool inverse : {false, true}) {
    check(HeadShuffle{16, 2, 4, 2, 6, inverse}, {qkv}, {garbage(16 * 8 * 6)});
    check(TokenShuffle{2, 8, 48, {2, true}, inverse}, {qkv}, {garbage(16 * 8 * 6)});
  }
}

TEST(Precision, OfRouters) {
  const Routing r{.batch = 2, .sequence = 8, .experts = 5, .top = 2, .capacity = 3};
  const std::int64_t rows = r.rows(), choices = rows * r.top, n = 21;
  const Operand none = indices(Values(choices, -7)), counts = indices(Values(r.experts, -7));
  const std::vector<Operand> reads = {{noise(1, rows * r.experts, 2)}};
  const std::vector<Operand> writes = {
      garbage_main(rows * r.experts),       none, garbage_main(choices), none, counts,
      garbage_main(2 * r.batch * r.experts)};
  check(Route{r}, reads, writes);
  const auto saved = run_on(testing::backends().front(), Route{r}, {}, reads, writes);
  const Operand probabilities = in_main({saved[0]}), choice = indices(saved[1]),
                gate = in_main({saved[2]}), slot = indices(saved[3]), balance = in_main({saved[5]});
  const Operand x{noise(2, rows * n)}, buffer{noise(3, r.buffer_rows() * n)};
  check(BalanceLoss{r, 0.1}, {balance}, {with_loss_scale(16)});
  check(RouteGradient{r, 0.1},
        {in_main({noise(4, choices)}), probabilities, choice, gate, balance, with_loss_scale(16)},
        {garbage(rows * r.experts)});
  check(Dispatch{r, n, false}, {x, slot}, {garbage(r.buffer_rows() * n)});
  check(Dispatch{r, n, true}, {buffer, slot}, {garbage(rows * n)});
  check(Combine{r, n}, {buffer, slot, gate}, {garbage(rows * n)});
  check(CombineGradient{r, n}, {x, buffer, slot, gate},
        {garbage(r.buffer_rows() * n), garbage_main(choices)});
}

TEST(Precision, OfExperts) {
  const std::int64_t n = 19, k = 24, there = 80;
  const ExpertRows rows{.sources = 2, .experts = 2, .buffer_rows = 90, .rows = there};
  const Operand counts = indices({3, 70, 0, 7}), w{noise(1, 2 * n * k)};
  const Operand wide{noise(2, there * k)}, narrow{noise(3, there * n)};
  check(ExpertMatmul{rows, n, k, ExpertProduct::forward}, {wide, w, counts}, {garbage(there * n)});
  check(ExpertMatmul{rows, n, k, ExpertProduct::input_gradient}, {narrow, w, counts},
        {garbage(there * k)});
  for (bool accumulate : {false, true}) {
    check(ExpertMatmul{rows, n, k, ExpertProduct::weight_gradient, accumulate},
          {narrow, wide, counts}, {in_main({noise(4, 2 * n * k)})});
  }
  check(ExpertActivation{rows, k, false}, {wide, counts}, {garbage(there * k)});
  check(ExpertActivation{rows, k / 2, true}, {wide, counts}, {garbage(there * k / 2)});
  check(ExpertActivationGradient{rows, k, false}, {wide, {noise(5, there * k, 3)}, counts},
        {garbage(there * k)});
  check(ExpertActivationGradient{rows, k / 2, true}, {{noise(6, there * k / 2)}, wide, counts},
        {garbage(there * k)});
}

TEST_P(PrecisionOfRows, OfActivationsAndSums) {
  const std::int64_t rows = 6, n = GetParam();
  const Operand u{noise(1, rows * n, 6)}, gate_up{noise(2, rows * 2 * n, 6)},
      dy{noise(3, rows * n)}, bias{noise(4, n)};
  const Operand y = garbage(rows * n);
  check(Gelu{rows, n}, {u}, {y});
  check(GeluGradient{rows, n}, {dy, u}, {y});
  check(Swiglu{rows, n}, {gate_up}, {y});
  check(SwigluGradient{rows, n}, {dy, gate_up}, {garbage(rows * 2 * n)});
  check(Add{rows, n, false}, {u, dy}, {y});
  check(Add{rows, n, true}, {u, dy, bias}, {y});
  check(Add{rows, n, true, {0.3, 7}, 1, rows}, {u, dy, bias}, {y});
  check(DropoutRows{rows, n, {0.3, 7}, 1, rows, {}}, {u}, {y});
  check(BiasGradient{rows, n, false}, {dy}, {garbage_main(n)});
  check(BiasGradient{rows, n, true}, {dy}, {in_main(bias)});
  check(Cast{n, true}, {bias}, {garbage_main(n)});
  check(Cast{n, false}, {in_main(bias)}, {garbage(n)});
  check(Accumulate{n, false}, {in_main(bias)}, {garbage_main(n)});
  check(Accumulate{n, true}, {in_main(bias)}, {in_main({noise(5, n)})});
}

TEST_P(PrecisionOfRows, OfTheLoss) {
  const std::int64_t rows = 4, n = GetParam() + 4, vocabulary = GetParam();
  const auto last = static_cast<double>(vocabulary - 1);
  const Operand logits{noise(1, rows * n, 5)}, labels = indices({std::min(3.0, last), -1, last, 0});
  const Operand max = in_main({Values(rows, 5)}), sums = in_main({Values(2 * rows, 1.5)});
  check(VocabularyMax{rows, n, vocabulary}, {logits}, {garbage_main(rows)});
  check(VocabularySums{rows, n, vocabulary}, {logits, labels, max}, {garbage_main(2 * rows)});
  check(CrossEntropy{rows}, {labels, sums}, {with_loss_scale(1)});
  check(CrossEntropyGradient{rows, n, vocabulary}, {labels, max, sums, with_loss_scale(1024)},
        {logits});
}

TEST_P(PrecisionOfRows, OfParametersIsThatOfTheirMainValuesRounded) {
  const std::int64_t n = GetParam() + 3;  // in two segments, of which the second begins anywhere
  const FlatSlice slice{n, 1, false, {{0, 3, true, 1}, {3, n, true, 1}}};
  for (bool moments : {false, true}) {
    const UpdateParameters op{slice, false, false, moments, 0.1, 0.9, 0.95, 1e-8, 0.1, 1.0};
    const std::vector<Operand> reads = {in_main({noise(1, n, 64)}),
                                        scalars({0, 4, 3e6, 0, 64, 0, 1})};
    std::vector<Operand> state = {in_main({noise(2, n)})};
    if (moments) state.insert(state.end(), {in_main({noise(3, n)}), in_main({Values(n, 0.5)})});
    const OpContext context{.step = 5};
    const auto expected = run_on(testing::backends().front(), op, context, reads, state);
    state.push_back(garbage(n));
    for (const Backend& backend : testing::half_backends()) {
      const auto actual = run_on(backend, op, context, reads, state);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expect_within(actual[i], expected[i], 0, 0, backend.text());
      EXPECT_EQ(actual.back(), testing::rounded(actual[0], backend.dtype)) << backend.text();
    }
  }
}

}  // namespace
}  // namespace mb
