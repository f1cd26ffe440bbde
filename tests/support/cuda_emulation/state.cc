// Calls, errors and streams of the emulation. A test double; see emulation.h.
#include "tests/support/cuda_emulation/state.h"

#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "parallel/device/device.h"
#include "tests/support/cuda_emulation/graph.h"
#include "tests/support/cuda_emulation/heap.h"
#include "workloads/base/rng.h"
#include "workloads/ops/cuda_launch.h"

namespace mb::cuda_emulation {
namespace {

struct Failure {
  std::int64_t call;
  int error;
  bool sticky;
};

struct State {
  std::mutex mutex;
  Settings settings;
  std::map<std::string, std::int64_t> calls;
  std::map<std::string, std::vector<Failure>> failures;
  std::map<int, int> stuck;  // by device
  std::vector<std::string> faults;
  std::set<CUstream_st*> streams;
  std::map<int, std::unique_ptr<CUstream_st>> defaults;
  Observer observer;
  std::uint32_t correlations = 0;
};
State& state() {
  static State* const state = new State;  // streams of static objects may outlive main
  return *state;
}

thread_local cudaError_t last_error = cudaSuccess;

CUstream_st& stream_of(cudaStream_t stream) {
  if (stream) return *stream;
  const std::lock_guard lock(state().mutex);
  auto& own = state().defaults[current_device()];
  if (!own) own = std::make_unique<CUstream_st>(current_device(), 7);
  return *own;
}

}  // namespace

void reset(const Settings& settings) {
  std::vector<std::unique_ptr<CUstream_st>> gone;
  {
    const std::lock_guard lock(state().mutex);
    for (auto& [device, stream] : state().defaults) gone.push_back(std::move(stream));
    state().defaults.clear();
    state().settings = settings;
    state().calls.clear();
    state().failures.clear();
    state().stuck.clear();
    state().faults.clear();
    state().observer = {};
  }
  gone.clear();
  clear_heap();
  last_error = cudaSuccess;
  set_current_device(0);
}

void fail(const std::string& function, int call, int error, bool sticky) {
  const std::lock_guard lock(state().mutex);
  state().failures[function].push_back({state().calls[function] + call, error, sticky});
}

std::int64_t calls(const std::string& function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

std::vector<std::string> faults() {
  std::vector<std::string> found = heap_faults();
  const std::lock_guard lock(state().mutex);
  found.insert(found.begin(), state().faults.begin(), state().faults.end());
  return found;
}

int enter(const char* function, int stuck_status) {
  const int device = current_device();
  const std::lock_guard lock(state().mutex);
  const std::int64_t call = ++state().calls[function];
  for (const Failure& failure : state().failures[function]) {
    if (failure.call != call) continue;
    if (failure.sticky) state().stuck[device] = failure.error;
    return failure.error;
  }
  const auto stuck = state().stuck.find(device);
  if (stuck == state().stuck.end()) return 0;
  return stuck_status ? stuck_status : stuck->second;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t enter_runtime(const char* function) {
  return remember(static_cast<cudaError_t>(enter(function)));
}

void fault(int device, cudaError_t error, const std::string& text) {
  const std::lock_guard lock(state().mutex);
  state().faults.push_back(text);
  state().stuck.try_emplace(device, error);
}

const Settings& settings() { return state().settings; }

bool stuck(int device) {
  const std::lock_guard lock(state().mutex);
  return state().stuck.contains(device);
}

void sleep_before(std::uint32_t piece) {
  const Settings& now = settings();
  if (now.most_delay_us == 0) return;
  const std::uint64_t bits = mix64(now.seed * 0x9e3779b97f4a7c15ull + piece);
  std::this_thread::sleep_for(std::chrono::microseconds(bits % (now.most_delay_us + 1)));
}

void observe(Observer observer) {
  const std::lock_guard lock(state().mutex);
  state().observer = std::move(observer);
}

void tell_host(const char* call, std::int64_t start_ns, std::size_t bytes) {
  std::function<void(const HostCall&)> host;
  {
    const std::lock_guard lock(state().mutex);
    host = state().observer.host;
  }
  if (host) host({call, bytes, start_ns, now_ns()});
}

cudaError_t submit(cudaStream_t stream, Activity activity, std::function<void()> work) {
  CUstream_st& on = stream_of(stream);
  activity.device = on.device;
  activity.stream = on.id;
  Observer observer;
  {
    const std::lock_guard lock(state().mutex);
    activity.correlation = ++state().correlations;
    observer = state().observer;
  }
  if (capture_work(on, activity, work)) return cudaSuccess;
  if (observer.submitted) observer.submitted(activity);
  on.push([activity, done = std::move(observer.done), work = std::move(work)]() mutable {
    sleep_before(activity.correlation);
    if (stuck(activity.device)) return;
    activity.start_ns = now_ns();
    work();
    activity.end_ns = now_ns();
    if (done) done(activity);
  });
  return cudaSuccess;
}
void submit_always(cudaStream_t stream, std::function<void()> work) {
  stream_of(stream).push(std::move(work));
}
void drain(cudaStream_t stream) { stream_of(stream).drain(); }
void drain_device(int device) {
  std::vector<CUstream_st*> streams;
  {
    const std::lock_guard lock(state().mutex);
    for (CUstream_st* stream : state().streams)
      if (stream->device == device) streams.push_back(stream);
  }
  for (CUstream_st* stream : streams) stream->drain();
}
int device_of(cudaStream_t stream) { return stream_of(stream).device; }

}  // namespace mb::cuda_emulation

namespace emulation = mb::cuda_emulation;

namespace mb::cuda {

cudaError_t emulate_launch(cudaStream_t stream, std::function<void()> work) {
  if (const cudaError_t error = emulation::enter_runtime("kernel launch")) return error;
  return emulation::submit(stream, {.call = "kernel launch"}, std::move(work));
}

}  // namespace mb::cuda

cudaError_t cudaPeekAtLastError() { return emulation::last_error; }
// An error that the device is stuck in stays.
cudaError_t cudaGetLastError() {
  const cudaError_t error = emulation::last_error;
  emulation::last_error = cudaSuccess;
  return error;
}

CUstream_st::CUstream_st(int device, std::uint32_t id)
    : device(device), id(id), thread_([this] { run(); }) {
  // The default stream is made with the lock held, and is found through `defaults`.
  if (id != 7) {
    const std::lock_guard lock(emulation::state().mutex);
    emulation::state().streams.insert(this);
  }
}
CUstream_st::~CUstream_st() {
  {
    const std::lock_guard lock(emulation::state().mutex);
    emulation::state().streams.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CUstream_st::push(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void CUstream_st::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

bool CUstream_st::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

// What is queued is done even if the stream is destroyed, as CUDA has it.
void CUstream_st::run() {
  emulation::set_current_device(device);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}
