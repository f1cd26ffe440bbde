#include "bench/coll/config.h"

#include <algorithm>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {

std::string_view name_of(Cache cache) { return cache == Cache::warm ? "warm" : "cold"; }

std::string_view name_of(ComputeKind compute) {
  return compute == ComputeKind::none     ? "none"
         : compute == ComputeKind::matmul ? "matmul"
                                          : "memory";
}

std::string_view name_of(CallKind call) {
  return call == CallKind::blocking ? "blocking" : "stream";
}

Group group_named(std::string_view text, std::string_view subject) {
  if (text == "world") return kWorld;
  constexpr Axis kNamed[] = {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::rdp, Axis::pp};
  Group group;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const Axis axis =
        find_named(kNamed, text.substr(begin, end - begin),
                   cat(subject, "=", text, ", '", text.substr(begin, end - begin), "'"),
                   [](Axis known) { return name_of(known); });
    const std::uint8_t bit = group_of(axis).axes;
    require((group.axes & bit) == 0, subject, "=", text, ": ", name_of(axis),
            " is there twice; give each axis once");
    group.axes |= bit;
    begin = end + 1;
  }
  return group;
}

void check_config(const CollConfig& config) {
  for (const Group& group : config.axes) {
    const int size = config.mesh.group_size(group);
    const bool rooted = std::any_of(config.operations.begin(), config.operations.end(), has_root);
    require(!rooted || config.root < size, "root=", config.root, ": a group of axis ",
            name_of(group), " has members 0 to ", size - 1);
  }
  // Far from the end of the type, so that sums and products over ranks are too.
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
  for (const std::int64_t size : config.sizes)
    require(size <= kMostBytes, "size=", size, ": more than 1024T, which no machine holds");
  for (const Operation operation : config.operations) {
    // Throws for an operation that the table lacks, whatever the members and bytes.
    if (config.tuning) algorithm_for(*config.tuning, operation, 1, 0);
    require(config.places != Places::in || can_be_in_place(operation),
            "in_place=in: ", name_of(operation),
            " cannot be in place; leave it out of op=, or give in_place=both");
  }
  require(!config.injection || config.injection->rank < config.mesh.world(),
          "inject=rank:", config.injection ? config.injection->rank : 0, ": ranks are 0 to ",
          config.mesh.world() - 1);
  require(!config.beside || config.mesh.group_size(config.beside->group) > 1,
          "beside=: a group of axis ", config.beside ? name_of(config.beside->group) : "",
          " of mesh ", config.mesh.to_text(), " has one rank; name an axis with more");
  require(!config.beside || config.overlap == ComputeKind::none,
          "beside= and overlap=", name_of(config.overlap), " go one at a time; leave one out");
}

CollCall call_of(const Point& point, int members, int root) {
  return call_of(point.operation, members, point.bytes, point.type, point.redop,
                 has_root(point.operation) ? root : 0);
}

std::vector<Algorithm> algorithms_of(const CollConfig& config, Operation operation,
                                     const Group& group, std::int64_t bytes) {
  if (!config.tuning) {
    // An operation that an algorithm lacks goes the communicator's own way, once.
    std::vector<Algorithm> algorithms;
    for (Algorithm algorithm : config.algorithms) {
      if (!is_choice(operation, algorithm)) algorithm = Algorithm::own;
      if (std::find(algorithms.begin(), algorithms.end(), algorithm) == algorithms.end())
        algorithms.push_back(algorithm);
    }
    return algorithms;
  }
  return {algorithm_for(*config.tuning, operation, config.mesh.group_size(group), bytes)};
}

std::string to_text(const Point& point) {
  return cat(name_of(point.operation),
             has_size(point.operation) ? cat(" of ", format_bytes(static_cast<double>(point.bytes)),
                                             ' ', name_of(point.type))
                                       : "",
             point.in_place ? " in place" : "", " over ", name_of(point.group));
}

namespace {

void add_places(const CollConfig& config, Point point, std::vector<Point>& points) {
  const bool both = can_be_in_place(point.operation);
  for (const bool in_place : {false, true}) {
    const Places unwanted = in_place ? Places::out : Places::in;
    if (both ? config.places == unwanted : in_place) continue;
    point.in_place = in_place;
    points.push_back(point);
  }
}

std::vector<Point> table_of(const CollConfig& config, Point point) {
  const std::vector<std::int64_t> one = {0};
  std::vector<Point> points;
  for (const std::int64_t bytes : has_size(point.operation) ? config.sizes : one) {
    point.bytes = bytes;
    for (const Algorithm algorithm : algorithms_of(config, point.operation, point.group, bytes)) {
      point.algorithm = algorithm;
      add_places(config, point, points);
    }
  }
  return points;
}

}  // namespace

std::vector<std::vector<Point>> tables_of(const CollConfig& config) {
  std::vector<std::vector<Point>> tables;
  for (const Operation operation : config.operations) {
    for (const Group& group : config.axes) {
      for (const DType type : config.dtypes) {
        for (const ReduceOp redop : config.redops) {
          // What has no elements or reduces nothing is measured once.
          if (!has_size(operation) && type != config.dtypes.front()) continue;
          if (!reduces(operation) && redop != config.redops.front()) continue;
          tables.push_back(table_of(config, {.operation = operation,
                                             .group = group,
                                             .type = type,
                                             .redop = redop,
                                             .beside = config.beside,
                                             .overlap = config.overlap}));
        }
      }
    }
  }
  return tables;
}

std::vector<std::vector<int>> groups_of(const CollConfig& config, const Group& group) {
  std::vector<std::vector<int>> groups = config.mesh.groups(group);
  if (!config.all_groups) groups.resize(1);
  return groups;
}

}  // namespace mb
