#include "bench/report/table.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

using Values = std::vector<std::optional<double>>;
using Cells = std::vector<std::string>;

Table two_rows() {
  Table table({{"case", Align::left}, {"step ms"}});
  table.add({"a", "1.50"});
  table.add({"longer", "12.25"});
  return table;
}

TEST(Table, NumbersAreRightAlignedUnderTheirHeaders) {
  EXPECT_EQ(two_rows().to_text(),
            "case    step ms\n"
            "---------------\n"
            "a          1.50\n"
            "longer    12.25\n");
}

TEST(Table, LettersOfSeveralBytesTakeOneColumn) {
  Table table({{"µs", Align::left}, {"n"}});
  table.add({"é", "1"});
  EXPECT_EQ(table.to_text(), "µs  n\n-----\né   1\n");
}

TEST(Table, LongLinesAreCutToTheWidth) {
  EXPECT_EQ(two_rows().to_text({.utf8 = true, .width = 8}),
            "case   …\n────────\na      …\nlonger …\n");
  EXPECT_EQ(two_rows().to_text({.width = 8}), "case ...\n--------\na    ...\nlonge...\n");
}

TEST(Table, CsvQuotesWhatWouldBreakIt) {
  Table table({{"a"}, {"b"}});
  table.add({"x,y", "say \"so\""});
  EXPECT_EQ(table.to_csv(), "a,b\n\"x,y\",\"say \"\"so\"\"\"\n");
}

TEST(Table, MarkdownSaysTheAlignmentAndEscapesBars) {
  Table table({{"a", Align::left}, {"b"}});
  table.add({"x|y", "2"});
  EXPECT_EQ(table.to_markdown(), "| a | b |\n| --- | ---: |\n| x\\|y | 2 |\n");
}

TEST(Scale, OneUnitServesTheWholeColumn) {
  const Scaled times = scale(Values{0.0123456, 0.5e-3, std::nullopt}, "s");
  EXPECT_EQ(times.unit, "ms");
  EXPECT_EQ(times.cells, (Cells{"12.35", "0.50", "-"}));
  const Scaled bytes = scale(Values{1536.0 * 1024, 1024.0}, "B");
  EXPECT_EQ(bytes.unit, "MiB");
  EXPECT_EQ(bytes.cells, (Cells{"1.500", "0.001"}));
  EXPECT_EQ(scale(Values{12.5e9}, "B/s").unit, "GB/s");
}

TEST(Scale, WholeNumbersStayWhole) {
  EXPECT_EQ(scale(Values{3.0, 512.0}, "").cells, (Cells{"3", "512"}));
  EXPECT_EQ(scale(Values{0.0}, "s").cells, (Cells{"0"}));
}

TEST(Scale, NothingToScaleIsAllDashes) {
  EXPECT_EQ(scale(Values{std::nullopt}, "B").cells, (Cells{"-"}));
}

}  // namespace
}  // namespace mb
