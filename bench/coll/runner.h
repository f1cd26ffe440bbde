// Times points on a world, whatever its ranks are. Each process runs its own ranks as threads; all
// processes make the same calls, and rank 0's process gets the results.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/config.h"
#include "bench/coll/cores.h"
#include "bench/coll/result.h"
#include "parallel/comm/comm.h"

namespace mb {

// Bytes of buffers that one rank needs for the points.
std::int64_t buffer_bytes(const CollConfig& config, const std::vector<Point>& points, int rank);
// And at most what operations take on top, where ranks are processes or an algorithm is not `own`:
// as much as the largest operand.
std::int64_t scratch_bytes(const CollConfig& config, std::vector<Point> points, int rank,
                           bool processes);
// Throws Error with what is needed where the ranks of this process's machine need more memory than
// it has left.
void check_memory(World& world, const CollConfig& config, const std::vector<Point>& points);

class CollRunner {
 public:
  // `points`: all that will be measured, so that memory is taken once. `interrupted` is asked on
  // rank 0 after each batch.
  CollRunner(
      World& world, const CollConfig& config, std::vector<Point> points,
      std::function<bool()> interrupted = [] { return false; });
  ~CollRunner();
  CollRunner(const CollRunner&) = delete;
  CollRunner& operator=(const CollRunner&) = delete;

  // Nothing but on the process with rank 0. Throws Error, with what each rank is doing, where a
  // rank fails or none, of any process, gets on for the config's timeout.
  std::optional<PointResult> measure(const Point& point);
  // Of this process's ranks, or its machine's.
  CoreShare core_share() const;
  // Whether the last measure() was interrupted; the same on every process.
  bool was_interrupted() const;

 private:
  struct State;
  class Watched;
  std::unique_ptr<State> state_;
};

}  // namespace mb
