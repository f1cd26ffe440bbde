// A table as text: numbers to the right, units in the headers, one prefix for a whole column.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mb {

enum class Align : std::uint8_t { right, left };

struct Column {
  std::string title;
  Align align = Align::right;
};

struct TableStyle {
  bool utf8 = false;  // rules and ellipsis; else ASCII
  int width = 0;      // longer lines are cut; 0 is no limit
};
// UTF-8 if the locale of the environment is (LC_ALL, LC_CTYPE, LANG, the first that is set).
TableStyle style_of_environment(int width = 0);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns, text in UTF-8.
  void add(std::vector<std::string> cells);
  std::string to_text(const TableStyle& style = {}) const;  // ends in a newline
  std::string to_csv() const;                               // RFC 4180, but for its line ends
  std::string to_markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Numbers of one column at one scale: the prefix that leaves the largest at 1 or above, and as many
// decimals as give it four digits. An absent number is "-".
struct Scaled {
  std::string unit;  // "ms", "GB/s", "MiB"
  std::vector<std::string> cells;
};
// `unit` is the base unit: "s", "B" (powers of 1024), "B/s", "FLOP/s", "token/s", or "" for none.
Scaled scale(std::span<const std::optional<double>> values, std::string_view unit);

}  // namespace mb
