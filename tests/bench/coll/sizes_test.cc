#include "bench/coll/sizes.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

using Sizes = std::vector<std::int64_t>;

Sizes sizes(std::string_view text) { return parse_sizes(text, "size"); }

TEST(Sizes, ReadsOneSizeInEveryUnit) {
  EXPECT_EQ(sizes("4096"), Sizes{4096});
  EXPECT_EQ(sizes("64K"), Sizes{65536});
  EXPECT_EQ(sizes("64KiB"), Sizes{65536});
  EXPECT_EQ(sizes("64KB"), Sizes{64000});
  EXPECT_EQ(sizes("1.5MiB"), Sizes{3 << 19});
  EXPECT_EQ(sizes("1e6B"), Sizes{1000000});
  EXPECT_EQ(sizes("2T"), Sizes{std::int64_t{2} << 40});
  EXPECT_EQ(sizes("0"), Sizes{0});
}

TEST(Sizes, ReadsListsAndRanges) {
  EXPECT_EQ(sizes("1K,8,1K"), (Sizes{1024, 8}));
  EXPECT_EQ(sizes("8:64:x2"), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes("8:100:x2"), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes("1:4:x1.1"), (Sizes{1, 2, 3, 4}));
  EXPECT_EQ(sizes("1M:3M:+1M"), (Sizes{1 << 20, 2 << 20, 3 << 20}));
  EXPECT_EQ(sizes("5:5:+1"), Sizes{5});
  EXPECT_EQ(sizes("1:100/1,7"), (Sizes{1, 10, 100, 7}));
  EXPECT_EQ(sizes("10:100/3"), (Sizes{10, 22, 46, 100}));
  EXPECT_EQ(sizes("8M:10G/10").size(), 32u);
}

TEST(Sizes, HoldsEverySizeOf64BitsExactly) {
  EXPECT_EQ(sizes("9007199254740993"), Sizes{9007199254740993});
  EXPECT_EQ(sizes("9223372036854775807"), Sizes{9223372036854775807});
  EXPECT_EQ(sizes("4611686018427387904:9223372036854775807:x2").size(), 1u);
  EXPECT_EQ(sizes("9223372036854775806:9223372036854775807:+1").size(), 2u);
}

TEST(Sizes, RefusesNamingTheToken) {
  const std::pair<const char*, const char*> cases[] = {
      {"2Mfoo", "=2Mfoo: not a size"},
      {"1K,,2K", "''"},
      {"", "''"},
      {"-8", "=-8: not a size"},
      {"9223372036854775808", "=9223372036854775808: not a whole number"},
      {"8E", "=8E: not a size"},
      {"16777216T", "=16777216T: not a size"},
      {"1.5", "=1.5: not a size"},
      {"8:4:x2", "begins above its end"},
      {"8:64:x1", "x2"},
      {"8:64:x0.5", "above 1"},
      {"8:64:xx", "'8:64:xx'"},
      {"0:64:x2", "begins at 0"},
      {"8:64:+0", "step of 0"},
      {"8:64:2", "goes on by '2'"},
      {"8:64", "MIN:MAX:x2"},
      {"8:64/0", "1 to 1000"},
      {"8:64/x", "'8:64/x'"},
      {"0:64/3", "begins at 0"},
      {"1K:64k9:x2", "'64k9'"},
      {"1:1T:+1", "10000"},
  };
  for (const auto& [text, part] : cases) {
    const std::string message = message_of([&, text = text] { sizes(text); });
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
    EXPECT_NE(message.find(std::string("size=") + text), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace mb
