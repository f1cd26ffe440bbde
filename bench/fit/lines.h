// Text as lines and words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mb {

// Without their ends, "\r\n" too.
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string_view> words_of(std::string_view line);
// Cells of a line of CSV; quotes may hold commas and doubled quotes.
std::vector<std::string> cells_of(std::string_view line);

}  // namespace mb
