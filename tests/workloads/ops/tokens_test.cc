#include "workloads/ops/tokens.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace mb {
namespace {

// sequence * 100 + position of every row of a rank.
std::vector<std::int64_t> places(const TokenSplit& split, std::int64_t batch, std::int64_t sequence,
                                 int context_index, int shard_index) {
  std::vector<std::int64_t> result;
  for (std::int64_t row = 0; row < rows_of(split, batch, sequence); ++row) {
    const auto place = place_of_row(split, batch, sequence, context_index, shard_index, row);
    result.push_back(place.sequence * 100 + place.position);
  }
  return result;
}
using Places = std::vector<std::int64_t>;

TEST(Tokens, ContextRanksHaveRunsOfEverySequence) {
  EXPECT_EQ(places({.context_ways = 2}, 2, 4, 1, 0), (Places{2, 3, 102, 103}));
}

TEST(Tokens, ZigZagRanksHaveARunFromTheFrontAndOneFromTheBack) {
  EXPECT_EQ(places({.context_ways = 2, .zigzag = true}, 2, 8, 0, 0),
            (Places{0, 1, 6, 7, 100, 101, 106, 107}));
  EXPECT_EQ(places({.context_ways = 2, .zigzag = true}, 1, 8, 1, 0), (Places{2, 3, 4, 5}));
}

TEST(Tokens, TensorRanksDivideTheRowsOfTheirContextRank) {
  EXPECT_EQ(places({.context_ways = 2, .zigzag = true, .row_ways = 2}, 1, 8, 0, 1), (Places{6, 7}));
  EXPECT_EQ(places({.row_ways = 2}, 2, 2, 0, 1), (Places{100, 101}));
  // Without the division every tensor rank has all.
  EXPECT_EQ(places({}, 1, 3, 0, 5), (Places{0, 1, 2}));
}

TEST(Tokens, RanksTogetherHaveEveryTokenOnceAndRunsEqualRows) {
  for (const TokenSplit& split : {TokenSplit{3, false, 1},
                                  {3, true, 1},
                                  {2, true, 4},
                                  {1, true, 2},
                                  {2, false, 4},
                                  {6, true, 2}}) {
    const std::int64_t batch = 2, sequence = 24;
    std::set<std::int64_t> seen;
    for (int context = 0; context < split.context_ways; ++context) {
      for (int shard = 0; shard < split.row_ways; ++shard) {
        const Places rows = places(split, batch, sequence, context, shard);
        seen.insert(rows.begin(), rows.end());
        Places runs;
        for_each_run(split, batch, sequence, context, shard,
                     [&](std::int64_t row, const TokenPlace& place, std::int64_t count) {
                       EXPECT_EQ(row, static_cast<std::int64_t>(runs.size()));
                       for (std::int64_t i = 0; i < count; ++i)
                         runs.push_back(place.sequence * 100 + place.position + i);
                     });
        EXPECT_EQ(runs, rows);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), batch * sequence);
  }
}

}  // namespace
}  // namespace mb
