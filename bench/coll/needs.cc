#include "bench/coll/needs.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "workloads/base/error.h"
#include "workloads/base/pages.h"
#include "workloads/base/units.h"

namespace mb {

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> members_of(const CollConfig& config, const Group& group, int rank) {
  if (config.all_groups) return config.mesh.members(group, rank);
  for (const std::vector<int>& members : groups_of(config, group)) {
    if (std::find(members.begin(), members.end(), rank) != members.end()) return members;
  }
  return {};
}

int index_of(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

std::vector<int> ranks_on_machine(const World& world) {
  const std::string machine = world.machine_of(world.local_ranks().front());
  std::vector<int> ranks = all_ranks(world);
  std::erase_if(ranks, [&](int rank) { return world.machine_of(rank) != machine; });
  return ranks;
}

CoreShare core_share(const World& world, const Cores& cores) {
  const CoreShare own{static_cast<int>(world.local_ranks().size()), cores.count()};
  if (own.is_crowded()) return own;
  return {static_cast<int>(ranks_on_machine(world).size()),
          static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
}

BufferSizes largest_buffers(const CollConfig& config, const std::vector<Point>& points, int rank) {
  BufferSizes largest;
  for (const Point& point : points) {
    const std::vector<int> members = members_of(config, point.group, rank);
    if (members.empty()) continue;
    const CollCall call = call_of(point, static_cast<int>(members.size()), config.root);
    const BufferSizes sizes = buffer_sizes(call, index_of(members, rank), point.in_place);
    largest.in = std::max(largest.in, sizes.in);
    largest.out = std::max(largest.out, sizes.out);
  }
  return largest;
}

BufferSizes beside_buffers(const CollConfig& config, const Beside& beside, int rank) {
  const std::vector<int> members = config.mesh.members(beside.group, rank);
  const CollCall call = call_of(beside.operation, static_cast<int>(members.size()), beside.bytes,
                                DType::fp32, ReduceOp::sum, 0);
  return buffer_sizes(call, index_of(members, rank), false);
}

std::int64_t pool_bytes(const CollConfig& config) {
  const int sharing = std::min(config.mesh.world(), config.mesh.ranks_per_node());
  return config.cache == Cache::cold ? cold_pool_bytes(sharing) : 0;
}

std::int64_t buffer_bytes(const CollConfig& config, const std::vector<Point>& points, int rank) {
  const BufferSizes most = largest_buffers(config, points, rank);
  const std::int64_t one = std::max(most.in + most.out, pool_bytes(config));
  std::int64_t beside = 0;
  for (const Point& point : points) {
    if (!point.beside) continue;
    const BufferSizes sizes = beside_buffers(config, *point.beside, rank);
    beside = std::max(beside, sizes.in + sizes.out);
  }
  return one + beside;
}

std::int64_t scratch_bytes(const CollConfig& config, std::vector<Point> points, int rank,
                           bool processes) {
  std::erase_if(
      points, [&](const Point& point) { return !processes && point.algorithm == Algorithm::own; });
  const BufferSizes most = largest_buffers(config, points, rank);
  return std::max(most.in, most.out);
}

std::optional<OutOfMemory> does_not_fit(const CollConfig& config, const Point& point,
                                        const Surroundings& around) {
  if (around.mode != "sim" || !around.machine) return std::nullopt;
  std::int64_t needed = 0;
  for (const std::vector<int>& members : groups_of(config, point.group))
    for (const int rank : members) needed = std::max(needed, buffer_bytes(config, {point}, rank));
  const double capacity = 1e9 * around.machine->memory_gb;
  if (static_cast<double>(needed) <= capacity) return std::nullopt;
  return OutOfMemory(
      cat("the buffers of ", to_text(point), " take ", format_bytes(static_cast<double>(needed)),
          " on a rank, and a device of ", around.machine->name, " has ", format_bytes(capacity),
          "; give a smaller size"),
      needed, static_cast<std::int64_t>(capacity));
}

void check_memory(World& world, const CollConfig& config, const std::vector<Point>& points) {
  const bool processes = static_cast<int>(world.local_ranks().size()) < world.size();
  double needed = 0;
  for (const int rank : ranks_on_machine(world)) {
    needed += static_cast<double>(buffer_bytes(config, points, rank));
    needed += static_cast<double>(scratch_bytes(config, points, rank, processes));
  }
  const double available = available_bytes();
  if (available == 0 || needed < available) return;
  throw OutOfMemory(
      cat("the buffers of the ranks on host ", world.host_of(world.local_ranks().front()), " take ",
          format_bytes(needed), ", and it has ", format_bytes(available),
          " left; give a smaller largest size than ", config.sizes_text, ", or fewer ranks"),
      static_cast<std::int64_t>(needed), static_cast<std::int64_t>(available));
}

}  // namespace mb
