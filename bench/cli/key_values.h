// Values as keys hold them: what several tables of keys read and write alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/base/suggest.h"

namespace mb {

// A user's JSON; a megabyte is far more than any has. Throws InputError.
std::string read_file(const std::string& path, std::string_view key);
// Counts stay far from the ends of their types, so that sums and products of them do too: at most
// 1e9.
std::int64_t whole(std::string_view key, std::string_view value, std::int64_t least);
double not_negative(std::string_view key, std::string_view value);

template <class Enum>
Enum choice(std::string_view key, std::string_view value,
            const std::vector<std::pair<std::string_view, Enum>>& known) {
  return find_named(known, value, cat(key, "=", value),
                    [](const auto& entry) { return entry.first; })
      .second;
}

// As parse_bytes reads it, with the largest unit that keeps it whole.
std::string bytes_text(std::int64_t bytes);
std::string number_text(double value);
bool on_off(std::string_view key, std::string_view value);
std::string on_off_text(bool value);
std::vector<std::string> split_at(std::string_view text, char mark);
std::string list_text(const std::vector<int>& numbers);  // "0,0,1"

}  // namespace mb
