// What a run of collectives is about, and the points it measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/coll/operation.h"
#include "bench/coll/tuning.h"
#include "parallel/mesh/mesh.h"
#include "workloads/base/pages.h"

namespace mb {

// Another collective that runs over and over beside the one that is timed.
struct Beside {
  Operation operation = Operation::all_reduce;
  Group group = kWorld;
  std::int64_t bytes = 0;
  bool operator==(const Beside&) const = default;
};

// A rank that arrives late at every operation, on purpose.
struct Injection {
  int rank = 0;
  std::int64_t delay_ns = 0;
  bool operator==(const Injection&) const = default;
};

enum class Places : std::uint8_t { both, in, out };
enum class Cache : std::uint8_t { warm, cold };
enum class ComputeKind : std::uint8_t { none, matmul, memory };  // on a second thread of each rank
// How a rank makes its call: itself, or by submitting it to a stream of its own, a thread that
// waits for work as those of a training step do, and waiting for its event.
enum class CallKind : std::uint8_t { blocking, stream };
std::string_view name_of(Cache cache);
std::string_view name_of(ComputeKind compute);
std::string_view name_of(CallKind call);

struct CollConfig {
  std::vector<Operation> operations = {Operation::all_reduce};
  Mesh mesh = Mesh::parse("dp2");
  std::vector<Group> axes = {kWorld};
  bool all_groups = true;  // at once; else the first alone
  std::optional<Beside> beside;
  std::string sizes_text = "1K:16M:x4";
  std::vector<std::int64_t> sizes;
  std::vector<DType> dtypes = {DType::fp32};
  std::vector<ReduceOp> redops = {ReduceOp::sum};
  int root = 0;  // place in the group
  Places places = Places::both;
  std::vector<Algorithm> algorithms = {Algorithm::own};
  std::optional<Tuning> tuning;  // chooses one for each point instead
  Cache cache = Cache::warm;
  ComputeKind overlap = ComputeKind::none;
  CallKind call = CallKind::blocking;
  int warm_up = 5;          // at least so many operations at every point
  double interval = 0.02;   // half width of the 95 % interval of the median, relative to it
  double time_cap_s = 0.5;  // of the timed operations of a point
  std::int64_t least = 10, most = 20'000;  // timed operations
  bool check = true;
  PageSize pages = PageSize::huge;
  std::int64_t seed = 1;
  double timeout_s = 60;
  std::optional<Injection> injection;
};

// "tp", "dp.cp", "world". Throws Error naming `subject`.
Group group_named(std::string_view text, std::string_view subject);

// Throws Error with the key that does not fit the others.
void check_config(const CollConfig& config);

// One thing to time, on every group of an axis.
struct Point {
  Operation operation = Operation::all_reduce;
  Group group = kWorld;
  std::int64_t bytes = 0;  // as asked for
  DType type = DType::fp32;
  ReduceOp redop = ReduceOp::sum;
  Algorithm algorithm = Algorithm::own;
  bool in_place = false;
  std::optional<Beside> beside;
  ComputeKind overlap = ComputeKind::none;
};
CollCall call_of(const Point& point, int members, int root);
std::string to_text(const Point& point);  // "all_reduce of 1 MiB over tp"

// By which a point of this size is measured.
std::vector<Algorithm> algorithms_of(const CollConfig& config, Operation operation,
                                     const Group& group, std::int64_t bytes);

// Points that stand in one table: of one operation, axis, type and reduction, by size and
// algorithm, out of place before in place.
std::vector<std::vector<Point>> tables_of(const CollConfig& config);
// Groups of the point's axis that are to be measured, as ranks.
std::vector<std::vector<int>> groups_of(const CollConfig& config, const Group& group);

}  // namespace mb
