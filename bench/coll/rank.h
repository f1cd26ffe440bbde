// One rank of a run: its communicators, buffers and arrays of times.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/background.h"
#include "bench/coll/buffers.h"
#include "bench/coll/compute.h"
#include "bench/coll/cores.h"
#include "bench/coll/gpu.h"
#include "bench/coll/pacer.h"
#include "bench/coll/place.h"
#include "bench/coll/result.h"
#include "parallel/comm/comm.h"
#include "parallel/device/device.h"

namespace mb {

// A start and an end for each operation of a batch.
class Stamps {
 public:
  explicit Stamps(std::int64_t capacity);
  void start(std::int64_t i, std::int64_t ns) { start_[i] = ns; }
  void end(std::int64_t i, std::int64_t ns) { end_[i] = ns; }
  std::int64_t* starts() { return start_; }
  std::int64_t* ends() { return end_; }

 private:
  Pages pages_;
  std::int64_t *start_, *end_;
};

class CollRank {
 public:
  // On a GPU where `make_device` is not empty.
  CollRank(World& world, const CollConfig& config, const std::vector<Point>& points, int rank,
           RankPlace& place, const Cores& cores, DeviceMaker make_device = {});

  int rank() const { return rank_; }
  // On the rank's own thread. The result on rank 0 alone.
  std::optional<PointResult> measure(const Point& point, const std::function<bool()>& interrupted);
  bool was_interrupted() const { return interrupted_; }

 private:
  // What a batch is of: with `beside`, operation is what runs while the other does.
  enum class Run : std::uint8_t { operation, alone, compute, both };
  struct Decision {
    std::int64_t next = 0;  // operations, or units
    std::int64_t interrupted = 0;
    std::int64_t lead_ns = 0;  // from the meeting to the start; 0: as it is
  };
  using Asked = std::function<bool()>;

  void set_up();  // for all points
  void set_point(const Point& point);
  // A new Comm; no work of this rank's own, as others have to come.
  std::unique_ptr<Comm> meet(const std::string& name, const std::vector<int>& members,
                             bool native = false);
  Comm& comm_of(const Group& group, Algorithm algorithm, const std::vector<int>& members);
  Comm& start_of(const Group& group, const std::vector<int>& members);
  Background* background_of(const Beside& beside);

  std::int64_t warm_up(const Asked& interrupted);
  void calibrate();
  void timed(const std::vector<Run>& runs, const Asked& interrupted);

  void batch(Run run, std::int64_t operations);
  void one(Run run, std::int64_t i, bool full);
  void operate(Run run, std::int64_t i, void* in, void* out);
  // Makes the call and stamps it, by the stream where there is one.
  void make_call(Series series, std::int64_t i, const Operands& operands);
  ThreadUsage usage();  // of this thread and the stream's
  void wait_for_others();
  void delay();

  // Gathers the times of a batch to rank 0, which adds them to its result if they are to be kept.
  void share(Run run, std::int64_t operations, bool keep);
  void share_series(Series series, std::int64_t operations, bool keep);
  Decision decide(Decision own);  // rank 0's
  void share_findings();
  std::optional<double> least_certain() const;

  Stamps& stamps(Series series);

  World& world_;
  const CollConfig& config_;
  const Cores& cores_;
  const int rank_;
  RankPlace& place_;
  BufferSizes largest_;
  // Ranks have cores of their own: they begin at an instant that they agree on,
  // not when each has woken from their meeting.
  const bool spins_;
  const bool pinned_;  // to its own core, where the machine has no other process' ranks
  const DeviceMaker make_device_;
  std::vector<World::GroupName> groups_;  // of all points, that this rank is in
  std::unique_ptr<CollGpu> gpu_;          // as make_device_ says; outlives its Comms
  std::map<std::string, std::unique_ptr<Comm>> comms_;
  std::map<std::string, std::unique_ptr<Background>> backgrounds_;
  std::unique_ptr<Comm> control_;
  std::unique_ptr<Device> stream_;  // of call=stream on CPUs; may use any core
  std::unique_ptr<Buffers> buffers_;
  std::vector<Stamps> series_;
  std::vector<std::int64_t> gathered_[2];  // starts and ends of all ranks, on rank 0

  // Of the point at hand.
  Comm* comm_ = nullptr;  // none where this rank's group is not measured
  Comm* start_ = nullptr;
  CollCall call_;
  std::unique_ptr<Checker> checker_;
  Background* background_ = nullptr;
  std::unique_ptr<ComputeThread> compute_;
  bool in_place_ = false;
  std::int64_t units_ = 1;
  std::int64_t lead_ns_ = 0;
  std::int64_t operation_ = 0;
  ThreadUsage usage_;
  std::optional<PointResult> result_;  // on rank 0
  // Of the batch shared last, on rank 0: medians of the slowest group and of the least together.
  double last_median_ns_ = 0, last_skew_ns_ = 0;
  bool interrupted_ = false;
};

}  // namespace mb
