#include "parallel/comm/collective.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

// Factors of nccl-tests' PERFORMANCE.md.
TEST(BusbwFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::all_to_all, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::all_to_all_v, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::all_reduce, 2), 1);
}

// A member sends and receives the whole size over its own links, as in a broadcast.
TEST(BusbwFactor, OfAShiftIsOne) {
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::shift, 2), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(CollectiveKind::shift, 8), 1);
}

TEST(BusbwFactor, IsUndefinedForOneRank) {
  EXPECT_EQ(message_of([] { busbw_factor(CollectiveKind::all_gather, 1); }),
            "bus bandwidth of all_gather over 1 ranks is undefined; give at least 2");
}

TEST(CollectiveNames, AreThoseOfTheCommandLine) {
  EXPECT_EQ(name_of(CollectiveKind::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(name_of(CollectiveKind::all_to_all_v), "all_to_all_v");
  EXPECT_EQ(name_of(CollectiveKind::shift), "shift");
  EXPECT_EQ(name_of(ReduceOp::max), "max");
}

}  // namespace
}  // namespace mb
