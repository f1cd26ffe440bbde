// Events of a Chrome trace as PyTorch's profiler and this program write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mb {

struct TraceEvent {
  std::string name, category;
  std::string action;               // of this program's instructions
  std::string shape;                // of a kernel's launch: grid and block
  std::vector<std::int64_t> after;  // instructions of other streams that it waited for
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t process = 0, thread = 0, stream = -1, correlation = -1, instruction = -1;
  std::int64_t bytes = 0, transfer_ns = 0;  // of this program's communication: what it
  std::int64_t ranks = 0, nodes = 0, groups_on_a_node = 0;  // moves, and between whom
};

// The complete slices ("ph":"X") of a trace. Times are read from their decimal text, since a double
// of a time since 1970 in microseconds knows no nanoseconds. Throws Error naming the byte at which
// the text is no JSON any more.
std::vector<TraceEvent> trace_events(std::string_view text, const std::string& path);

}  // namespace mb
