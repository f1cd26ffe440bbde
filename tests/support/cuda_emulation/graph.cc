// Graphs, captured from streams. A test double; see emulation.h. Of a graph that runs, what came
// from one stream runs in order on a thread, beside all others: what is not ordered shows.
#include "tests/support/cuda_emulation/graph.h"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "tests/support/cuda_emulation/heap.h"

using namespace mb::cuda_emulation;

namespace {

struct Node {
  Activity activity;
  std::function<void()> work;
  std::set<Place> after;
};

}  // namespace

struct CUgraph_st {
  std::map<std::uint32_t, std::vector<Node>> nodes;  // by stream
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

struct mb::cuda_emulation::Capture {
  cudaStream_t origin = nullptr;
  CUgraph_st graph;
  std::map<cudaStream_t, std::set<Place>> reached;
  cudaError_t failed = cudaSuccess;
  bool ended = false;
  std::atomic<bool> busy{false};
};

namespace {

std::mutex& captures_lock() {
  static auto* const lock = new std::mutex;
  return *lock;
}
std::map<cudaStream_t, std::shared_ptr<Capture>>& captures() {
  static auto* const known = new std::map<cudaStream_t, std::shared_ptr<Capture>>;
  return *known;
}

std::shared_ptr<Capture> capture_of(cudaStream_t stream) {
  const std::lock_guard lock(captures_lock());
  const auto found = captures().find(stream);
  return found == captures().end() ? nullptr : found->second;
}

// CUDA wants calls that concern one graph to come one after the other.
class Alone {
 public:
  Alone(Capture& capture, int device) : capture_(capture) {
    if (capture_.busy.exchange(true))
      fault(device, cudaErrorIllegalState, "two threads capture into one graph at once");
    if (settings().most_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  ~Alone() { capture_.busy = false; }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  Capture& capture_;
};

// Whether all nodes come before what the origin has reached.
bool joined(const Capture& capture) {
  std::set<Place> before;
  std::vector<Place> left;
  const auto add = [&](const std::set<Place>& places) {
    for (const Place& place : places) {
      if (before.insert(place).second) left.push_back(place);
    }
  };
  add(capture.reached.at(capture.origin));
  while (!left.empty()) {
    const Place place = left.back();
    left.pop_back();
    add(capture.graph.nodes.at(place.stream)[place.index].after);
  }
  std::size_t nodes = 0;
  for (const auto& [stream, own] : capture.graph.nodes) nodes += own.size();
  return before.size() == nodes;
}

bool same_shape(const CUgraph_st& one, const CUgraph_st& other) {
  if (one.nodes.size() != other.nodes.size()) return false;
  for (const auto& [stream, nodes] : one.nodes) {
    const auto found = other.nodes.find(stream);
    if (found == other.nodes.end() || found->second.size() != nodes.size()) return false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (std::string(nodes[i].activity.call) != found->second[i].activity.call ||
          nodes[i].after != found->second[i].after)
        return false;
    }
  }
  return true;
}

void run_graph(const CUgraph_st& graph) {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, std::size_t> done;
  for (const auto& [stream, nodes] : graph.nodes) done[stream] = 0;
  const auto run_stream = [&](std::uint32_t stream, const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] {
          for (const Place& place : node.after)
            if (done.at(place.stream) <= place.index) return false;
          return true;
        });
      }
      set_current_device(node.activity.device);
      sleep_before(node.activity.correlation);
      if (!stuck(node.activity.device)) node.work();
      {
        const std::lock_guard lock(mutex);
        ++done[stream];
      }
      changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (const auto& [stream, nodes] : graph.nodes)
    threads.emplace_back(run_stream, stream, std::cref(nodes));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

namespace mb::cuda_emulation {

bool capture_work(CUstream_st& stream, const Activity& activity, std::function<void()> work) {
  const auto capture = capture_of(&stream);
  if (!capture) return false;
  const Alone alone(*capture, stream.device);
  const std::lock_guard lock(captures_lock());
  std::vector<Node>& nodes = capture->graph.nodes[stream.id];
  std::set<Place>& reached = capture->reached[&stream];
  nodes.push_back({activity, std::move(work), std::move(reached)});
  reached = {{stream.id, nodes.size() - 1}};
  return true;
}

std::optional<Point> captured_point(cudaStream_t stream) {
  const auto capture = capture_of(stream);
  if (!capture) return std::nullopt;
  const Alone alone(*capture, stream->device);
  const std::lock_guard lock(captures_lock());
  return Point{capture, capture->reached[stream]};
}

cudaError_t follow(cudaStream_t stream, const Point& point) {
  const auto own = capture_of(stream);
  if (point.capture->ended) return cudaErrorCapturedEvent;
  if (own && own != point.capture) return cudaErrorStreamCaptureMerge;
  const Alone alone(*point.capture, stream->device);
  const std::lock_guard lock(captures_lock());
  captures()[stream] = point.capture;
  point.capture->reached[stream].insert(point.at.begin(), point.at.end());
  return cudaSuccess;
}

cudaError_t refuse_captured(cudaStream_t stream, cudaError_t error) {
  const auto capture = capture_of(stream);
  if (!capture) return cudaSuccess;
  const std::lock_guard lock(captures_lock());
  capture->failed = cudaErrorStreamCaptureInvalidated;
  return error;
}

void forget_captured(cudaStream_t stream) {
  const std::lock_guard lock(captures_lock());
  captures().erase(stream);
}

}  // namespace mb::cuda_emulation

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call("cudaStreamBeginCapture", [&] {
    const std::lock_guard lock(captures_lock());
    if (captures().contains(stream)) return cudaErrorIllegalState;
    const auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->reached[stream] = {};
    captures()[stream] = capture;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&] {
    *graph = nullptr;
    const auto capture = capture_of(stream);
    if (!capture) return cudaErrorIllegalState;
    const Alone alone(*capture, stream->device);
    const std::lock_guard lock(captures_lock());
    if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
    std::erase_if(captures(), [&](const auto& each) { return each.second == capture; });
    capture->ended = true;
    if (capture->failed != cudaSuccess) return capture->failed;
    if (!joined(*capture)) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st(capture->graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", [&] {
    *made = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return call("cudaGraphExecUpdate", [&] {
    *info = {};
    if (!same_shape(*exec->graph, *graph)) {
      info->result = cudaGraphExecUpdateErrorTopologyChanged;
      return cudaErrorGraphExecUpdateFailure;
    }
    exec->graph = std::make_shared<const CUgraph_st>(*graph);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] {
    submit_always(stream, [graph = exec->graph] { run_graph(*graph); });
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return call("cudaGraphDestroy", [] { return cudaSuccess; });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return call("cudaGraphExecDestroy", [] { return cudaSuccess; });
}
