// "Did you mean": the known name nearest to one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "workloads/base/error.h"

namespace mb {

// The candidate with the smallest edit distance, case ignored; the first of equals, "" of none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "a, b, c", for messages that list what is known.
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

// The entry of `table` that is called `name`; name_of(entry) is what one is called. Throws Error
// for any other: "<subject> is not known; did you mean 'x'? Known: x, y, z".
template <class Table, class NameOf>
const auto& find_named(const Table& table, std::string_view name, std::string_view subject,
                       NameOf name_of) {
  std::vector<std::string> names;
  for (const auto& entry : table) {
    if (name_of(entry) == name) return entry;
    names.emplace_back(name_of(entry));
  }
  throw Error(cat(subject, " is not known; did you mean '", nearest(name, names),
                  "'? Known: ", join(names)));
}

}  // namespace mb
