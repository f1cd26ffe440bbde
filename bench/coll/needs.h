// What the ranks of a run need of their machine: buffers, memory, cores.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/coll/buffers.h"
#include "bench/coll/config.h"
#include "bench/coll/cores.h"
#include "bench/coll/summary.h"
#include "parallel/comm/comm.h"
#include "workloads/base/error.h"

namespace mb {

std::vector<int> all_ranks(const World& world);
std::vector<int> ranks_on_machine(const World& world);  // of this process, in all processes
// Of this process's ranks and its cores, or of its machine's: the first that has too few cores.
CoreShare core_share(const World& world, const Cores& cores);

// Members of the group that holds `rank`; empty where that one is not measured.
std::vector<int> members_of(const CollConfig& config, const Group& group, int rank);
int index_of(const std::vector<int>& members, int rank);

BufferSizes largest_buffers(const CollConfig& config, const std::vector<Point>& points, int rank);
BufferSizes beside_buffers(const CollConfig& config, const Beside& beside, int rank);
std::int64_t pool_bytes(const CollConfig& config);  // of one rank

// Bytes of buffers that one rank needs for the points.
std::int64_t buffer_bytes(const CollConfig& config, const std::vector<Point>& points, int rank);
// And at most what operations take on top, where ranks are processes or an algorithm is not `own`:
// as much as the largest operand.
std::int64_t scratch_bytes(const CollConfig& config, std::vector<Point> points, int rank,
                           bool processes);
// In mode=sim: what a rank's buffers take, where the machine's devices have less.
std::optional<OutOfMemory> does_not_fit(const CollConfig& config, const Point& point,
                                        const Surroundings& around);
// Throws OutOfMemory with what is needed where the ranks of this process's machine need more memory
// than it has left.
void check_memory(World& world, const CollConfig& config, const std::vector<Point>& points);

}  // namespace mb
