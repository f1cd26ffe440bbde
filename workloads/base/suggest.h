// "Did you mean": the known name nearest to one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mb {

// The candidate with the smallest edit distance, case ignored; the first of equals, "" of none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "a, b, c", for messages that list what is known.
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

}  // namespace mb
