#include "workloads/ops/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/reference.h"
#include "workloads/ops/tokens.h"

namespace mb {
namespace {

using testing::garbage;
using testing::noise;
using testing::run_on;
using Values = std::vector<double>;

constexpr std::int64_t kBatch = 4, kSequence = 8, kColumns = 37;
constexpr Dropout kDropout{0.3, 11};

// What is kept of ones, in fp64.
Values dropped(const Dropout& dropout, const TokenSplit& split, std::int64_t batch,
               const OpContext& context) {
  const std::int64_t rows = rows_of(split, batch, kSequence);
  const DropoutRows op{rows, kColumns, dropout, batch, kSequence, split};
  const Values ones(rows * kColumns, 1.0);
  return run_on(testing::backends().front(), op, context, {{ones}}, {garbage(rows * kColumns)})[0];
}

TEST(Dropout, KeepsWhatTheUniformNumberOfTheElementSays) {
  const OpContext context{.step = 3, .first_sample = 20, .seed = 5};
  const Values y = dropped(kDropout, {}, kBatch, context);
  const std::uint64_t seed = mix64(5 + 0x9e3779b97f4a7c15ull * 4);
  for (std::int64_t i = 0; i < kBatch * kSequence * kColumns; ++i) {
    const std::int64_t index = 20 * kSequence * kColumns + i;
    EXPECT_EQ(y[i], random_uniform(seed, 11, index) >= 0.3 ? 1 / (1 - 0.3) : 0) << i;
  }
}

TEST(Dropout, IsTheSameHoweverTheTokensAreDivided) {
  const Values whole = dropped(kDropout, {}, kBatch, {});
  for (const TokenSplit& split :
       {TokenSplit{2, true, 1}, {2, false, 1}, {1, false, 2}, {2, true, 2}}) {
    for (int data = 0; data < 2; ++data) {
      for (int context = 0; context < split.context_ways; ++context) {
        for (int shard = 0; shard < split.row_ways; ++shard) {
          const Values part = dropped(
              kDropout, split, kBatch / 2,
              {.shard_index = shard, .context_index = context, .first_sample = data * kBatch / 2});
          for (std::int64_t row = 0; row < rows_of(split, kBatch / 2, kSequence); ++row) {
            const TokenPlace place =
                place_of_row(split, kBatch / 2, kSequence, context, shard, row);
            const std::int64_t sample = data * kBatch / 2 + place.sequence;
            const auto from = part.begin() + row * kColumns;
            EXPECT_TRUE(
                std::equal(from, from + kColumns,
                           whole.begin() + (sample * kSequence + place.position) * kColumns));
          }
        }
      }
    }
  }
}

TEST(Dropout, DropsAnotherSetWithEachSeedStepAndStream) {
  const Values first = dropped(kDropout, {}, kBatch, {});
  EXPECT_NE(dropped(kDropout, {}, kBatch, {.seed = 2}), first);
  EXPECT_NE(dropped(kDropout, {}, kBatch, {.step = 1}), first);
  EXPECT_NE(dropped({0.3, 12}, {}, kBatch, {}), first);
}

TEST(Dropout, DropsTheShareItIsAskedFor) {
  for (double probability : {0.0, 0.1, 0.5, 0.9}) {
    std::int64_t zeros = 0;
    const std::int64_t steps = 50, elements = kBatch * kSequence * kColumns;
    for (std::int64_t step = 0; step < steps; ++step) {
      const Values y = dropped({probability, 1}, {}, kBatch, {.step = step});
      zeros += std::count(y.begin(), y.end(), 0.0);
    }
    const double n = static_cast<double>(steps * elements);
    EXPECT_LE(std::abs(zeros - n * probability), 5 * std::sqrt(n * probability));
  }
}

TEST(Dropout, OfASumIsThatOfItsFirstTermAndBias) {
  const std::int64_t rows = kBatch * kSequence, size = rows * kColumns;
  const Values a = noise(1, size), b = noise(2, size), bias = noise(3, kColumns);
  for (const testing::Backend& backend : testing::backends()) {
    const auto sum = [&](bool with_bias, const Dropout& dropout, const Values& to) {
      return run_on(backend, Add{rows, kColumns, with_bias, dropout, kBatch, kSequence}, {},
                    {{a}, {to}, {bias}}, {garbage(size)})[0];
    };
    for (bool with_bias : {false, true}) {
      const Values term = sum(with_bias, {}, Values(size, 0.0));
      const Values kept =
          run_on(backend, DropoutRows{rows, kColumns, kDropout, kBatch, kSequence, {}}, {},
                 {{term}}, {garbage(size)})[0];
      Values expected = b;
      for (std::int64_t i = 0; i < size; ++i) expected[i] += kept[i];
      testing::expect_close(sum(with_bias, kDropout, b), expected, testing::tolerance(backend),
                            backend.text());
    }
  }
}

}  // namespace
}  // namespace mb
