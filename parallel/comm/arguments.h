// What every implementation of Comm refuses before it begins. `group` is its name, for messages, or
// "" where it is not known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "workloads/base/error.h"

namespace mb {

inline std::string group_prefix(std::string_view group) {
  return group.empty() ? "" : cat("group ", group, ": ");
}

inline void check_count(std::string_view call, std::int64_t count) {
  require(count >= 0, call, " wants a count of 0 or more, not ", count);
}

// `what` is "broadcast from" or "gather to", say.
inline void check_root(std::string_view group, std::string_view what, int root, int size) {
  if (root >= 0 && root < size) return;
  throw Error(cat(group_prefix(group), what, " member ", root, " of ", size));
}

// Of an all_to_all_v; `side` is "send" or "receive".
inline void check_parts(std::string_view group, std::string_view side,
                        std::span<const std::int64_t> counts, int size) {
  if (static_cast<int>(counts.size()) != size)
    throw Error(cat(group_prefix(group), "all_to_all_v has ", counts.size(), " counts to ", side,
                    ", one for each of ", size, " members wanted"));
  for (const std::int64_t count : counts) check_count("all_to_all_v", count);
}

inline void check_peer(std::string_view group, int peer, int index, int size) {
  if (peer >= 0 && peer < size && peer != index) return;
  throw Error(
      cat(group_prefix(group), "member ", index, " of ", size, " cannot exchange with ", peer));
}

}  // namespace mb
