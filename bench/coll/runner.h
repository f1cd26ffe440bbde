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
#include "parallel/exec/executor.h"

namespace mb {

class CollRunner {
 public:
  // `points`: all that will be measured, so that memory is taken once. `interrupted` is asked on
  // rank 0 after each batch. `make_device`: the GPUs that operands are on; empty: none.
  CollRunner(
      World& world, const CollConfig& config, std::vector<Point> points,
      std::function<bool()> interrupted = [] { return false; }, DeviceMaker make_device = {});
  ~CollRunner();
  CollRunner(const CollRunner&) = delete;
  CollRunner& operator=(const CollRunner&) = delete;

  // Nothing but on the process with rank 0. Throws OutOfMemory, or Error, with what each rank is
  // doing, where a rank fails or none, of any process, gets on for the config's timeout.
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
