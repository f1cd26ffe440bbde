// CUPTI's functions on the host. Records come when they are flushed, spread over buffers in no
// order, launches and links apart from work. A test double; see cupti.h.
#include "tests/support/cuda_emulation/cupti.h"

#include <cupti.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/rng.h"

namespace mb::cuda_emulation {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Cupti {
  std::mutex mutex;
  CuptiSettings settings;
  std::set<CUpti_ActivityKind> kinds;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc timestamp = nullptr;
  bool subscribed = false;
  std::vector<Bytes> records;
  std::size_t dropped = 0;
  std::uint32_t host_calls = 0;
};
Cupti& cupti() {
  static auto* const state = new Cupti;
  return *state;
}
thread_local std::vector<std::uint64_t> pushed;

// Without a callback of its own clock CUPTI has another one.
std::uint64_t on_clock(std::int64_t ns) {
  constexpr std::int64_t kElsewhere = 1'000'000'000'000'000;
  return static_cast<std::uint64_t>(cupti().timestamp ? ns : ns + kElsewhere);
}

template <class Record>
void add(const Record& record) {
  if (!cupti().kinds.contains(record.kind)) return;
  Bytes bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  cupti().records.push_back(std::move(bytes));
}

bool is_every(int n, std::uint32_t correlation) {
  return n > 0 && correlation % static_cast<std::uint32_t>(n) == 0;
}

void submitted(const Activity& activity) {
  const std::lock_guard lock(cupti().mutex);
  const bool unlinked = is_every(cupti().settings.unlink_every, activity.correlation);
  if (!pushed.empty() && !unlinked) {
    CUpti_ActivityExternalCorrelation link{};
    link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    link.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link.externalId = pushed.back();
    link.correlationId = activity.correlation;
    add(link);
  }
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.correlationId = activity.correlation;
  add(call);
}

template <class Record>
void add_work(CUpti_ActivityKind kind, const Activity& activity) {
  Record record{};
  record.kind = kind;
  record.deviceId = static_cast<std::uint32_t>(activity.device);
  record.streamId = activity.stream;
  record.correlationId = activity.correlation;
  const bool zero = is_every(cupti().settings.zero_every, activity.correlation);
  record.start = zero ? 0 : on_clock(activity.start_ns);
  record.end = zero ? 0 : on_clock(activity.end_ns);
  if constexpr (requires { record.name; }) record.name = activity.call;
  if constexpr (requires { record.bytes; }) record.bytes = activity.bytes;
  add(record);
}

void done(const Activity& activity) {
  const std::lock_guard lock(cupti().mutex);
  const std::string_view call = activity.call;
  if (call == "cudaLaunchHostFunc") return;
  if (is_every(cupti().settings.drop_every, activity.correlation)) {
    if (!cupti().kinds.empty()) ++cupti().dropped;
    return;
  }
  if (call.starts_with("cudaMemcpy"))
    return add_work<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, activity);
  if (call.starts_with("cudaMemset"))
    return add_work<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, activity);
  add_work<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, activity);
}

// Every n-th of these has no times, as of work.
void host_call(const HostCall& did) {
  const std::lock_guard lock(cupti().mutex);
  const bool zero = is_every(cupti().settings.zero_every, ++cupti().host_calls);
  const auto start = zero ? 0 : on_clock(did.start_ns), end = zero ? 0 : on_clock(did.end_ns);
  const std::string_view name = did.call;
  if (name == "cudaMalloc") {
    CUpti_ActivityMemory4 memory{};
    memory.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
    memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    memory.bytes = did.bytes;
    memory.timestamp = end;
    return add(memory);
  }
  CUpti_ActivitySynchronization2 wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = name == "cudaStreamWaitEvent" ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT
              : name == "cudaEventSynchronize"
                  ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE
                  : CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.start = start;
  wait.end = end;
  add(wait);
  if (cupti().host_calls % 8 != 1) return;
  CUpti_ActivityOverhead3 overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  overhead.start = start;
  overhead.end = end;
  overhead.overheadData = std::malloc(16);
  add(overhead);
}

}  // namespace

void reset_cupti(const CuptiSettings& settings) {
  {
    const std::lock_guard lock(cupti().mutex);
    cupti().settings = settings;
    cupti().kinds.clear();
    cupti().records.clear();
    cupti().timestamp = nullptr;
    cupti().subscribed = false;
    cupti().dropped = 0;
    cupti().host_calls = 0;
  }
  observe({submitted, done, host_call});
}

int pushes_left() { return static_cast<int>(pushed.size()); }

}  // namespace mb::cuda_emulation

using namespace mb::cuda_emulation;

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = cupti().settings.version ? cupti().settings.version : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult code, const char** text) {
  *text = code == CUPTI_ERROR_UNKNOWN ? "CUPTI_ERROR_UNKNOWN"
          : code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "an error that the emulation has no words for";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  const std::lock_guard lock(cupti().mutex);
  if (cupti().settings.subscribe_status)
    return static_cast<CUptiResult>(cupti().settings.subscribe_status);
  if (cupti().subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  cupti().subscribed = true;
  static int place;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&place);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  const std::lock_guard lock(cupti().mutex);
  cupti().subscribed = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc timestamp) {
  const std::lock_guard lock(cupti().mutex);
  if (!cupti().kinds.empty()) return CUPTI_ERROR_INVALID_OPERATION;
  cupti().timestamp = timestamp;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  const std::lock_guard lock(cupti().mutex);
  cupti().request = request;
  cupti().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(cupti().mutex);
  if (cupti().settings.enable_status)
    return static_cast<CUptiResult>(cupti().settings.enable_status);
  cupti().kinds.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(cupti().mutex);
  cupti().kinds.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                   std::uint64_t id) {
  pushed.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                  std::uint64_t* last) {
  if (pushed.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  *last = pushed.back();
  pushed.pop_back();
  return CUPTI_SUCCESS;
}

// Shuffled, and a few to a buffer.
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  constexpr std::size_t kInABuffer = 997;
  std::vector<Bytes> records;
  {
    const std::lock_guard lock(cupti().mutex);
    records.swap(cupti().records);
  }
  for (std::size_t i = records.size(); i > 1; --i)
    std::swap(records[i - 1], records[mb::mix64(i) % i]);
  for (std::size_t first = 0; first < records.size(); first += kInABuffer) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0, used = 0;
    cupti().request(&buffer, &bytes, &most);
    const std::size_t last = std::min(first + kInABuffer, records.size());
    for (std::size_t i = first; i < last; ++i) {
      if (!buffer || used + records[i].size() > bytes) {
        const std::lock_guard lock(cupti().mutex);
        ++cupti().dropped;
        continue;
      }
      std::memcpy(buffer + used, records[i].data(), records[i].size());
      used += records[i].size();
    }
    if (buffer) cupti().complete(nullptr, 0, buffer, bytes, used);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  const std::lock_guard lock(cupti().mutex);
  *dropped = std::exchange(cupti().dropped, 0);
  return CUPTI_SUCCESS;
}

namespace {
std::size_t bytes_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}
}  // namespace

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes,
                                       CUpti_Activity** record) {
  std::uint8_t* const next =
      *record ? reinterpret_cast<std::uint8_t*>(*record) + bytes_of((*record)->kind) : buffer;
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
