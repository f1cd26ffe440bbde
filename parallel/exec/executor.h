// Executor: runs a Plan, for real or in virtual time, and says when everything happened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/device/device.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"
#include "workloads/model/layers.h"
#include "workloads/ops/launch.h"

namespace mb {

// Numbers of the training step; absent in virtual time.
struct Training {
  double loss = 0;           // summed loss over the global batch's valid tokens / their number
  double balance_loss = 0;   // of routers, over the same number; not part of `loss`
  double gradient_norm = 0;  // before clipping
  std::int64_t valid_tokens = 0;
  double loss_scale = 1;
  bool skipped = false;  // the gradient was not finite, and nothing was updated
};

struct StepResult {
  Timeline timeline;
  std::optional<Training> training;
  // CPU time of every compute instruction, by rank and id: what it would take on a core of its own.
  // Empty in virtual time and where the device keeps no such clock.
  std::vector<std::vector<std::int64_t>> cpu_ns;
  // How far apart the clocks of two ranks may be in the timeline.
  std::int64_t clock_uncertainty_ns = 0;
};

// Where the ranks are in several processes, all of these processes make the same calls in the same
// order, memory(), traffic() and read() included, and get the same results.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the next step; without `record`, real ranks leave spans and CPU times zero, which tells
  // what recording costs. Throws Error with rank, stream and label in front if any rank fails.
  virtual StepResult step(bool record = true) = 0;
  // Largest live bytes of a rank so far, counted by its allocator; nullopt in virtual time.
  virtual std::optional<MemoryPeak> memory(int rank) const = 0;
  // What each instruction of a rank sent or reduced in the last step, by id, as counted by its
  // communicators; a receive counts for its sender. Empty in virtual time.
  virtual std::vector<CommCount> traffic(int rank) const = 0;
  // Values of a tensor after the last step, converted to double. Throws Error in virtual time.
  virtual std::vector<double> read(int rank, TensorId tensor) const = 0;
};

// What a rank of this process runs on, with kStreams streams.
using DeviceMaker = std::function<std::unique_ptr<Device>(int rank)>;

struct LiveSettings {
  DeviceMaker make_device;  // empty: CPUs
  InitOptions init;
  const BatchSource* batches = nullptr;  // must outlive the executor
  // A run in which no rank ends an instruction for so long is aborted, and each rank's place named.
  double timeout_s = 60;
  std::uint64_t seed = 1;  // of dropout
  // What a rank's link to its second memory space carries, in 1e9 bytes; 0: as much as memory does.
  // Copies wait the rest of their time without a core.
  double host_gb_per_s = 0;
  Delays delays;  // of communication, for tests
  // For tests: whatever holds nothing yet, or nothing any more, is NaN, and a rank that writes past
  // the end of a tensor fails.
  bool poison = false;
};
// The ranks of `world` over devices, those of this process as threads. Keeps references to
// `plan` and `world`. `settings.delays` are the world's own business.
std::unique_ptr<Executor> make_live_executor(const Plan& plan, const LiveSettings& settings,
                                             World& world);
// The same over a ThreadWorld of its own.
std::unique_ptr<Executor> make_thread_executor(const Plan& plan, const LiveSettings& settings);

}  // namespace mb
