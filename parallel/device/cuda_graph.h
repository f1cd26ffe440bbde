// The streams of a step, captured as one CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <vector>

#include "parallel/device/cuda_events.h"

namespace mb {

// Every step is captured anew, since tokens, seeds and the number of the step are arguments of what
// it launches; the executable graph is made once and takes each step's arguments.
class StepGraph {
 public:
  StepGraph() = default;
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Captures what is enqueued on `streams` from now on. Any thread may enqueue that holds lock().
  void begin(const std::vector<cudaStream_t>& streams);
  bool captures() const { return !streams_.empty(); }
  // CUDA wants calls that concern one graph to come one after the other.
  std::unique_lock<std::mutex> lock();
  // Ends the capture and runs what was captured, on the first stream. Steps of the same `kind` have
  // the same work.
  void launch(int kind);
  // Of a step that has failed: nothing of it runs. The streams are as before.
  void abandon();

 private:
  std::vector<cudaStream_t> streams_;         // that are captured
  EventPool events_{cudaEventDisableTiming};  // of the fork and each join
  std::array<cudaGraphExec_t, 2> ready_{};
  std::mutex mutex_;
};

}  // namespace mb
