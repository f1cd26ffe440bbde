// Operations on tokens that context and tensor ranks divide, against the same on all tokens.
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/reference.h"
#include "workloads/ops/tokens.h"

namespace mb {
namespace {

using testing::Backend;
using testing::garbage;
using testing::noise;
using testing::run_on;
using Values = std::vector<double>;

constexpr std::int64_t kBatch = 2, kSequence = 8;
const TokenSplit kSplits[] = {{2, false, 1}, {2, true, 1}, {1, false, 4}, {2, true, 2}};

// f(backend, split, context) for every rank of every split.
using RankTest = std::function<void(const Backend&, const TokenSplit&, const OpContext&)>;
void for_all_ranks(const RankTest& f) {
  for (const Backend& backend : testing::backends()) {
    for (const TokenSplit& split : kSplits) {
      SCOPED_TRACE(backend.text() + " " + to_text({LoadBatch{.split = split}}));
      for (int context = 0; context < split.context_ways; ++context) {
        for (int shard = 0; shard < split.row_ways; ++shard)
          f(backend, split, {.shard_index = shard, .context_index = context});
      }
    }
  }
}

// The rows of `whole`, [kBatch * kSequence, n], that a rank has.
Values rows_here(const Values& whole, std::int64_t n, const TokenSplit& split,
                 const OpContext& context) {
  Values part;
  for (std::int64_t row = 0; row < rows_of(split, kBatch, kSequence); ++row) {
    const TokenPlace place =
        place_of_row(split, kBatch, kSequence, context.context_index, context.shard_index, row);
    const auto from = whole.begin() + (place.sequence * kSequence + place.position) * n;
    part.insert(part.end(), from, from + n);
  }
  return part;
}

class NumberedTokens : public BatchSource {
 public:
  void load(std::int64_t, int, int, std::int64_t batch, std::int64_t sequence, std::int32_t* tokens,
            std::int32_t* labels) const override {
    for (std::int64_t i = 0; i < batch * sequence; ++i) {
      if (tokens) tokens[i] = static_cast<std::int32_t>(i);
      if (labels) labels[i] = static_cast<std::int32_t>(100 + i);
    }
  }
};

TEST(Split, ARankLoadsItsTokensAndLabels) {
  const NumberedTokens batches;
  Values tokens, labels;
  for (std::int64_t i = 0; i < kBatch * kSequence; ++i) {
    tokens.push_back(i);
    labels.push_back(100 + i);
  }
  for_all_ranks([&](const Backend& backend, const TokenSplit& split, OpContext context) {
    context.batches = &batches;
    const auto none = testing::indices(Values(rows_of(split, kBatch, kSequence)));
    const auto run = [&](bool with_tokens, bool with_labels,
                         const std::vector<testing::Operand>& writes) {
      return run_on(backend, LoadBatch{kBatch, kSequence, with_tokens, with_labels, split}, context,
                    {}, writes);
    };
    const auto both = run(true, true, {none, none});
    EXPECT_EQ(both[0], rows_here(tokens, 1, split, context));
    EXPECT_EQ(both[1], rows_here(labels, 1, split, context));
    EXPECT_EQ(run(true, false, {none})[0], both[0]);
    EXPECT_EQ(run(false, true, {none})[0], both[1]);
  });
}

TEST(Split, PositionsAreThoseOfTheTokens) {
  const std::int64_t n = 5;
  const Values positions = noise(1, kSequence * n), x = noise(2, kBatch * kSequence * n);
  for_all_ranks([&](const Backend& backend, const TokenSplit& split, const OpContext& context) {
    const Values whole =
        run_on(backend, AddPositions{kBatch, kSequence, n}, {}, {{positions}}, {{x}})[0];
    const Values part = run_on(backend, AddPositions{kBatch, kSequence, n, split}, context,
                               {{positions}}, {{rows_here(x, n, split, context)}})[0];
    EXPECT_EQ(part, rows_here(whole, n, split, context));
  });
}

TEST(Split, GradientsOfPositionsAddUpToThoseOfAllTokens) {
  const std::int64_t n = 5;
  const Values dy = noise(1, kBatch * kSequence * n), start = noise(2, kSequence * n);
  for (const Backend& backend : testing::backends()) {
    const Values whole =
        run_on(backend, PositionGradient{kBatch, kSequence, n, true}, {}, {{dy}}, {{start}})[0];
    for (const TokenSplit& split : kSplits) {
      Values sum = start;
      for (int context = 0; context < split.context_ways; ++context) {
        for (int shard = 0; shard < split.row_ways; ++shard) {
          const OpContext rank{.shard_index = shard, .context_index = context};
          const Values part =
              run_on(backend, PositionGradient{kBatch, kSequence, n, false, split}, rank,
                     {{rows_here(dy, n, split, rank)}}, {garbage(kSequence * n)})[0];
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
        }
      }
      testing::expect_close(sum, whole, testing::tolerance(backend), backend.text());
    }
  }
}

TEST(Split, RotaryTurnsByThePositionOfTheToken) {
  const std::int64_t width = 4 * 6;
  const Values qkv = noise(1, kBatch * kSequence * width);
  for_all_ranks([&](const Backend& backend, const TokenSplit& split, const OpContext& context) {
    Rotary op{kBatch, kSequence, 2, 1, 6, 500.0f, false};
    const Values whole = run_on(backend, op, {}, {}, {{qkv}})[0];
    op.split = split;
    EXPECT_EQ(run_on(backend, op, context, {}, {{rows_here(qkv, width, split, context)}})[0],
              rows_here(whole, width, split, context));
  });
}

}  // namespace
}  // namespace mb
