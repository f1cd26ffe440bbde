#include "parallel/comm/collective.h"

#include "workloads/base/error.h"

namespace mb {

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::all_to_all_v:
      return "all_to_all_v";
    case CollectiveKind::shift:
      return "shift";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) { return op == ReduceOp::sum ? "sum" : "max"; }

double busbw_factor(CollectiveKind kind, int ranks) {
  require(ranks >= 2, "bus bandwidth of ", name_of(kind), " over ", ranks,
          " ranks is undefined; give at least 2");
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::broadcast:
    case CollectiveKind::shift:
      return 1;
    default:
      return (n - 1) / n;
  }
}

}  // namespace mb
