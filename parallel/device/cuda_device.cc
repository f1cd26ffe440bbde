// A rank on a GPU: each stream is a worker thread that enqueues on a CUDA stream, each event a CUDA
// event. Threads wait for each other's enqueueing alone; what runs waits on the device.
//
// A Comm that enqueues (NCCL) takes its stream from native(), and is called by Rank as work of that
// stream, between the events that order it: see World::comm_on().
#include "parallel/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "parallel/device/cuda_events.h"
#include "parallel/device/cuda_graph.h"
#include "parallel/device/cuda_stream.h"
#include "parallel/device/pinned_memory.h"
#include "parallel/plan/plan.h"
#include "workloads/base/cuda_check.h"
#include "workloads/base/cuda_memory.h"
#include "workloads/base/mutation.h"
#include "workloads/ops/cuda_ops.h"
#include "workloads/ops/fused_attention.h"

namespace mb {
namespace {

// A time of the device on the host's clock.
struct Reference {
  cudaEvent_t event = nullptr;
  std::int64_t host_ns = 0, uncertainty_ns = 0;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaOptions& options, int streams, const std::string& name)
      : device_(options.device), graphs_(options.graph), text_(cat("cuda device ", device_)) {
    use();
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    for (int s = 0; s < streams; ++s) {
      // What others wait for goes first.
      const int priority = s == static_cast<int>(Stream::compute) ? least : greatest;
      streams_.push_back(
          std::make_unique<CudaStream>(options, priority, cat(name, ".", s), failure_));
      shown_.push_back(std::make_unique<PinnedMemory>(kMostShown));
    }
    check(cudaStreamCreateWithFlags(&control_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }

  // Skips what is queued and waits for what runs; who waits for a peer must have been aborted.
  ~CudaDevice() override {
    cudaSetDevice(device_);
    failure_.skip_all();
    drain();
    for (auto& stream : streams_) stream->worker.stop();
    graph_.abandon();
    for (auto& stream : streams_) cudaStreamSynchronize(stream->native);
    cudaStreamSynchronize(control_);
    streams_.clear();
    cudaStreamDestroy(control_);
  }

  std::string text() const override { return text_; }
  bool memory_is_host() const override { return false; }

  void* allocate(std::size_t bytes) override {
    use();
    const std::lock_guard lock(mutex_);
    void* const at = memories_.emplace_back(bytes, "the memory of a rank").at();
    if (mutated("device_memory_freed")) memories_.pop_back();
    return at;
  }
  void* allocate_host(std::size_t bytes) override {
    use();
    const std::lock_guard lock(mutex_);
    return pinned_.emplace_back(std::make_unique<PinnedMemory>(bytes))->at();
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    copy_now(host, device, bytes);
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    copy_now(device, host, bytes);
  }
  void fill(void* at, std::byte value, std::size_t bytes) override {
    use();
    if (is_pinned(at)) {
      std::memset(at, static_cast<int>(value), bytes);
    } else if (bytes > 0) {
      check(cudaMemsetAsync(at, static_cast<int>(value), bytes, control_), "cudaMemsetAsync");
      check(cudaStreamSynchronize(control_), "cudaStreamSynchronize");
    }
  }
  void prepare(int stream, const Op& op) override {
    use();
    at(stream).ops().prepare(op);
  }

  // The first step runs as it is enqueued: libraries set up what no graph can have in it.
  void begin_step(bool record) override {
    use();
    const bool captures = graphs_ && steps_++ > 0;
    for (auto& stream : streams_) {
      stream->reuse_events(captures);
      stream->marks.reuse();
    }
    records_ = record;
    if (record) align();
    if (!captures) return;
    std::vector<cudaStream_t> natives;
    for (const auto& stream : streams_) natives.push_back(stream->native);
    graph_.begin(natives);
  }

  Event submit(int stream, std::function<void()> work, bool awaited) override {
    require(work != nullptr, text_, ": stream ", stream, " was given empty work");
    // Now and then one for passed(), where nobody waits.
    constexpr std::int64_t kMostUnseen = 64;
    CudaStream& on = at(stream);
    const std::int64_t ticket = on.worker.submitted() + 1;
    if (!awaited && (ticket - on.earlier()) % kMostUnseen != 0) {
      on.worker.submit([this, work = std::move(work)] {
        const auto lock = graph_.lock();
        work();
      });
    } else {
      const cudaEvent_t event = on.event_for(ticket);
      on.worker.submit([this, &on, event, work = std::move(work)] {
        const auto lock = graph_.lock();
        work();
        check(cudaEventRecord(event, on.native), "cudaEventRecord");
      });
    }
    return {stream, ticket};
  }

  void wait(int stream, Event event) override {
    CudaStream& waiter = at(stream);
    CudaStream& other = at(event.stream);
    if (&waiter == &other || event.ticket == 0) return;
    require(event.ticket <= other.worker.submitted(), text_, ": stream ", stream,
            " would wait for ticket ", event.ticket, " of stream ", event.stream,
            ", which has not been submitted");
    const cudaEvent_t passes = other.event_of(event.ticket);
    if (!passes) return;  // done, as it is of an earlier step
    if (mutated("device_waits_left_out")) return;
    waiter.worker.wait_for(other.worker.progress(), event.ticket, [this, &waiter, passes] {
      const auto lock = graph_.lock();
      check(cudaStreamWaitEvent(waiter.native, passes, 0), "cudaStreamWaitEvent");
    });
  }

  void synchronize() override {
    use();
    drain();
    failure_.rethrow();
    if (graph_.captures()) graph_.launch(records_ ? 1 : 0);
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const cudaError_t error = cudaStreamSynchronize(streams_[s]->native);
      if (error != cudaSuccess)
        check(error,
              cat("stream ", name_of(static_cast<Stream>(s)), ", after the last launch").c_str());
    }
    for (auto& stream : streams_) stream->rethrow();
    failure_.rethrow();  // of what was shown
  }

  // Asked by threads that have no device: on the first GPU, they would make a context there.
  std::int64_t passed() const override {
    cudaSetDevice(device_);
    std::int64_t sum = 0;
    for (const auto& stream : streams_) sum += stream->passed();
    return sum;
  }

  void run(int stream, const Op& op, const OpContext& context, std::span<const void* const> reads,
           std::span<void* const> writes) override {
    at(stream).ops().run(op, context, reads, writes);
  }
  void copy(int stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, at(stream).native),
          "cudaMemcpyAsync");
  }
  void fill(int stream, void* to, std::byte value, std::size_t bytes) override {
    if (bytes == 0) return;
    if (!is_pinned(to)) {
      check(cudaMemsetAsync(to, static_cast<int>(value), bytes, at(stream).native),
            "cudaMemsetAsync");
      return;
    }
    on_host(stream, [to, value, bytes] { std::memset(to, static_cast<int>(value), bytes); });
  }
  void show(int stream, const void* from, std::size_t bytes, Look look) override {
    require(bytes <= kMostShown, "at most ", kMostShown, " bytes can be shown, not ", bytes);
    if (bytes == 0) return look({});
    auto* const slot = static_cast<std::byte*>(shown_[stream]->at());
    copy(stream, slot, from, bytes);
    on_host(stream, [this, slot, bytes, look = std::move(look)] {
      try {
        look({slot, bytes});
      } catch (...) {
        failure_.keep(std::current_exception());
      }
    });
  }
  void finish(int stream) override {
    check(cudaStreamSynchronize(at(stream).native), "cudaStreamSynchronize");
  }
  NativeStream native(int stream) const override { return {device_, streams_.at(stream)->native}; }

  // Number of a stream's mark and, above it, the stream; never 0.
  std::int64_t mark(int stream) override {
    CudaStream& on = at(stream);
    check(cudaEventRecordWithFlags(
              on.marks.take(), on.native,
              graph_.captures() ? cudaEventRecordExternal : cudaEventRecordDefault),
          "cudaEventRecordWithFlags");
    return (std::int64_t{stream} << kMarkBits) + static_cast<std::int64_t>(on.marks.used());
  }
  void resolve(std::vector<Span>& spans) override {
    use();
    for (Span& span : spans) span = {time_of(span.start_ns), time_of(span.end_ns)};
  }
  std::int64_t clock_uncertainty_ns() const override { return reference_.uncertainty_ns; }

 private:
  static constexpr int kMarkBits = 40;

  void use() const { check(cudaSetDevice(device_), "cudaSetDevice"); }

  void drain() {
    for (auto& stream : streams_) stream->worker.progress().wait_for(stream->worker.submitted());
  }

  CudaStream& at(int stream) const {
    require(stream >= 0 && stream < static_cast<int>(streams_.size()), text_, " has no stream ",
            stream, " of ", streams_.size());
    return *streams_[stream];
  }

  bool is_pinned(const void* data) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(pinned_.begin(), pinned_.end(),
                       [data](const auto& memory) { return memory->holds(data); });
  }

  void copy_now(void* to, const void* from, std::size_t bytes) const {
    use();
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, control_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(control_), "cudaStreamSynchronize");
  }

  // `work` on a thread of the driver when the stream comes to it.
  void on_host(int stream, std::function<void()> work) const {
    auto owned = std::make_unique<std::function<void()>>(std::move(work));
    const auto call = [](void* data) {
      const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(data));
      (*mine)();
    };
    check(cudaLaunchHostFunc(at(stream).native, call, owned.get()), "cudaLaunchHostFunc");
    owned.release();
  }

  // An event of the idle device lies between two readings of the host's clock; of some tries, the
  // two that lie closest.
  void align() {
    constexpr int kTries = 3;
    if (!reference_.event) reference_.event = alignment_.take();
    reference_.uncertainty_ns = 0;
    cudaEvent_t other = spare_ ? spare_ : spare_ = alignment_.take();
    for (int i = 0; i < kTries; ++i) {
      const std::int64_t before = now_ns();
      check(cudaEventRecord(other, control_), "cudaEventRecord");
      check(cudaEventSynchronize(other), "cudaEventSynchronize");
      const std::int64_t half = (now_ns() - before) / 2;
      if (i > 0 && half >= reference_.uncertainty_ns) continue;
      std::swap(other, reference_.event);
      reference_.host_ns = before + half;
      reference_.uncertainty_ns = half;
    }
    spare_ = other;
  }

  std::int64_t time_of(std::int64_t mark) const {
    if (mark == 0) return 0;
    const auto index = static_cast<std::size_t>(mark & ((std::int64_t{1} << kMarkBits) - 1)) - 1;
    float ms = 0;
    check(cudaEventElapsedTime(&ms, reference_.event,
                               at(static_cast<int>(mark >> kMarkBits)).marks.at(index)),
          "cudaEventElapsedTime");
    return reference_.host_ns + std::llround(1e6 * static_cast<double>(ms));
  }

  const int device_;
  const bool graphs_;
  const std::string text_;
  mutable std::mutex mutex_;
  std::vector<cuda::Memory> memories_;  // this and the next: guarded by mutex_
  std::vector<std::unique_ptr<PinnedMemory>> pinned_;
  std::vector<std::unique_ptr<PinnedMemory>> shown_;  // by stream
  Failure failure_;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  StepGraph graph_;
  std::int64_t steps_ = 0;
  bool records_ = false;            // in this step
  cudaStream_t control_ = nullptr;  // of what is not in a step
  EventPool alignment_{cudaEventDefault};
  Reference reference_;
  cudaEvent_t spare_ = nullptr;
};

}  // namespace

int cuda_devices() {
  // Streams that share one of CUDA's queues wait for each other's work, and it makes 8 unless it is
  // told otherwise before it starts: fewer than the streams of a Plan.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    throw Error(
        "there is no CUDA device; 'nvidia-smi' lists those of the driver, and "
        "CUDA_VISIBLE_DEVICES may hide them");
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const auto version = [](int number) { return cat(number / 1000, '.', number % 1000 / 10); };
    throw Error(driver == 0
                    ? cat("there is no NVIDIA driver; install one for CUDA ",
                          version(CUDART_VERSION), " or later ('nvidia-smi' tells what there is)")
                    : cat("the NVIDIA driver is for CUDA ", version(driver), " and this build for ",
                          version(CUDART_VERSION),
                          "; update the driver, or build with an older "
                          "toolkit"));
  }
  check(error, "cudaGetDeviceCount");
  return count;
}

std::vector<CudaFacts> cuda_facts() {
  std::vector<CudaFacts> all;
  const int devices = cuda_devices();
  for (int device = 0; device < devices; ++device) {
    const std::int64_t allocated = cuda::allocated_bytes(device);
    if (allocated == 0) continue;
    check(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    all.push_back({device, properties.name, static_cast<std::int64_t>(total),
                   static_cast<std::int64_t>(total - free), allocated});
  }
  return all;
}

std::vector<std::string> cuda_attention() {
  const std::set<std::string> backends = cuda::attention_backends();
  return {backends.begin(), backends.end()};
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options, int streams,
                                         const std::string& name) {
  require(streams >= 1, "device ", name, " wants at least one stream, not ", streams);
  const int devices = cuda_devices();
  require(options.device >= 0 && options.device < devices, "there is no cuda device ",
          options.device, "; the driver shows ", devices);
  return std::make_unique<CudaDevice>(options, streams, name);
}

}  // namespace mb
