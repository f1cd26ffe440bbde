// What a member brings to a collective, and whether it is the same call as another member's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parallel/comm/collective.h"
#include "parallel/comm/gate.h"
#include "workloads/base/dtype.h"
#include "workloads/base/error.h"

namespace mb {

enum class Call : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  all_to_all_v,
  shift,
  reduce,
  gather,
  scatter,
  barrier
};

// Equal on all members but for buffers and parts.
struct alignas(line_bytes) Entry {
  Call call = Call::barrier;
  DType type = DType::fp32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int64_t count = 0;
  const void* from = nullptr;
  void* to = nullptr;
  // all_to_all_v: elements for each member and where they begin; elements wanted from each.
  const std::int64_t *sent = nullptr, *begin = nullptr, *wanted = nullptr;

  bool operator==(const Entry&) const = default;
};

inline bool match(const Entry& a, const Entry& b) {
  return a.call == b.call && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.root == b.root;
}

inline std::string to_text(const Entry& entry) {
  const auto of = [&](std::string_view name, const auto&... more) {
    return cat(name, " of ", entry.count, ' ', name_of(entry.type), more...);
  };
  switch (entry.call) {
    case Call::all_reduce:
      return of("all_reduce", ' ', name_of(entry.op));
    case Call::all_gather:
      return of("all_gather", " each");
    case Call::reduce_scatter:
      return of("reduce_scatter", " each ", name_of(entry.op));
    case Call::broadcast:
      return of("broadcast", " from member ", entry.root);
    case Call::all_to_all:
      return of("all_to_all", " each");
    case Call::all_to_all_v:
      return cat("all_to_all_v of ", name_of(entry.type));
    case Call::shift:
      return of("shift");
    case Call::reduce:
      return of("reduce", ' ', name_of(entry.op), " to member ", entry.root);
    case Call::gather:
      return of("gather", " each to member ", entry.root);
    case Call::scatter:
      return of("scatter", " each from member ", entry.root);
    case Call::barrier:
      return "barrier";
  }
  return "?";
}

}  // namespace mb
