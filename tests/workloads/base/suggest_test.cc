#include "workloads/base/suggest.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

TEST(Nearest, HasTheFewestEdits) {
  EXPECT_EQ(nearest("hiden", {"heads", "hidden", "head_dim"}), "hidden");
  EXPECT_EQ(nearest("gpt2-mediun", {"gpt2", "gpt2-medium", "gpt2-large"}), "gpt2-medium");
}

TEST(Nearest, IgnoresCase) { EXPECT_EQ(nearest("GPT2", {"llama", "gpt2"}), "gpt2"); }

TEST(Nearest, IsTheFirstOfEquals) { EXPECT_EQ(nearest("x", {"ab", "cd"}), "ab"); }

TEST(Nearest, OfNothingIsEmpty) { EXPECT_EQ(nearest("x", {}), ""); }

TEST(Join, PutsTheSeparatorBetweenItems) {
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({}), "");
}

}  // namespace
}  // namespace mb
