// Sizes of messages as people write them: one, a list, a range by a factor, by a step or by decade.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mb {

// Items with commas between, in the order written, each size once:
//   SIZE              as parse_bytes reads it: 4096, 1.5MiB, 64K (1024), 64KB (1000), 1e6B
//   MIN:MAX:xF        times F, above 1, from MIN up to MAX
//   MIN:MAX:+SIZE     plus SIZE
//   MIN:MAX/N         N to a decade, rounded to whole bytes
// Throws Error naming `subject`, the text and the part of it that will not do.
std::vector<std::int64_t> parse_sizes(std::string_view text, std::string_view subject);

// One size, with the offending token named: for lists of other things.
std::int64_t parse_size(std::string_view token, std::string_view text, std::string_view subject);

}  // namespace mb
