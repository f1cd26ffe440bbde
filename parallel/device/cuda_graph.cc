#include "parallel/device/cuda_graph.h"

#include <utility>

#include "workloads/base/cuda_check.h"

namespace mb {

StepGraph::~StepGraph() {
  for (cudaGraphExec_t ready : ready_) {
    if (ready) cudaGraphExecDestroy(ready);
  }
}

void StepGraph::begin(const std::vector<cudaStream_t>& streams) {
  // Relaxed: other threads enqueue, and what other ranks do meanwhile is no part of this.
  check(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  streams_ = streams;
  events_.reuse();
  const cudaEvent_t fork = events_.take();
  check(cudaEventRecord(fork, streams[0]), "cudaEventRecord");
  for (std::size_t s = 1; s < streams.size(); ++s)
    check(cudaStreamWaitEvent(streams[s], fork, 0), "cudaStreamWaitEvent");
}

std::unique_lock<std::mutex> StepGraph::lock() {
  return captures() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void StepGraph::abandon() {
  if (!captures()) return;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(std::exchange(streams_, {})[0], &graph);
  if (graph) cudaGraphDestroy(graph);
}

void StepGraph::launch(int kind) {
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    const cudaEvent_t join = events_.take();
    check(cudaEventRecord(join, streams_[s]), "cudaEventRecord");
    check(cudaStreamWaitEvent(streams_[0], join, 0), "cudaStreamWaitEvent");
  }
  const cudaStream_t on = std::exchange(streams_, {})[0];
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(on, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t& ready = ready_[kind];
  cudaGraphExecUpdateResultInfo info{};
  if (ready && cudaGraphExecUpdate(ready, graph, &info) != cudaSuccess) {
    cudaGetLastError();  // so that no launch reports it
    cudaGraphExecDestroy(std::exchange(ready, nullptr));
  }
  // Work keeps the priority of the stream that it was captured from.
  const cudaError_t made =
      ready ? cudaSuccess
            : cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(graph);
  check(made, "cudaGraphInstantiate");
  check(cudaGraphLaunch(ready, on), "cudaGraphLaunch");
}

}  // namespace mb
