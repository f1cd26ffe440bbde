#include "bench/profile/cupti.h"

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/exec/marker.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::size_t kBufferBytes = 4 << 20;  // within the 1 to 10 MB of CUPTI's advice
constexpr std::size_t kAtFirst = 8;            // made before any launch, which would wait for them
constexpr std::size_t kMostBuffers = 64;       // then records are dropped, and counted
constexpr std::size_t kAlignment = 8;
constexpr CUpti_ExternalCorrelationKind kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// Never the kind KERNEL, which runs kernels one after the other. Links come with the records of
// runtime and driver calls only.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                         CUPTI_ACTIVITY_KIND_MEMORY2,
                                         CUPTI_ACTIVITY_KIND_OVERHEAD};

std::string error_text(CUptiResult code) {
  const char* text = nullptr;
  cuptiGetResultString(code, &text);
  return cat("CUPTI status ", static_cast<int>(code), ", ", text ? text : "unknown");
}

void check(CUptiResult code, const char* what) {
  if (code == CUPTI_SUCCESS) return;
  const char* hint = "; profile=off runs without it";
  if (code == CUPTI_ERROR_UNKNOWN)
    hint =
        "; it says so where there is no driver or no GPU: 'meshbench doctor mode=nccl+threads' "
        "tells; "
        "profile=off runs without it";
  if (code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    hint =
        "; another profiler (nsys, ncu, torch.profiler) is attached to this process, and CUPTI "
        "serves one: detach it, or give profile=off";
  if (code == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
    hint =
        "; the driver lets root alone profile: run as root, or load nvidia with "
        "NVreg_RestrictProfilingToAdminUsers=0";
  throw Error(cat(what, ": ", error_text(code), hint));
}

struct FreeBuffer {
  void operator()(std::uint8_t* buffer) const { std::free(buffer); }
};
using Buffer = std::unique_ptr<std::uint8_t, FreeBuffer>;
struct FullBuffer {
  Buffer buffer;
  std::size_t bytes = 0;
};

// Zeroed, so that CUPTI does not do it within a launch; nullptr where there is no memory.
Buffer make_buffer() {
  auto* const memory = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  if (memory) std::memset(memory, 0, kBufferBytes);
  return Buffer(memory);
}

// What CUPTI's threads and those that launch give and take.
struct Collector {
  std::mutex mutex;
  std::vector<Buffer> free;
  std::vector<FullBuffer> full;
  std::size_t made = 0;
  bool on = false;
  CUpti_SubscriberHandle subscriber = nullptr;
};
// Never destroyed: CUPTI may call until the process ends.
Collector& collector() {
  static Collector* const instance = new Collector;
  return *instance;
}

// Nothing of CUPTI may be called here, and nothing thrown.
void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  const std::lock_guard lock(collector().mutex);
  *most_records = 0;  // as many as fit
  *bytes = kBufferBytes;
  if (collector().free.empty() && collector().made < kMostBuffers) {
    if (Buffer fresh = make_buffer()) {
      ++collector().made;
      collector().free.push_back(std::move(fresh));
    }
  }
  if (collector().free.empty()) {
    *buffer = nullptr;
    *bytes = 0;
    return;
  }
  *buffer = collector().free.back().release();
  collector().free.pop_back();
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) {
  if (!buffer) return;
  const std::lock_guard lock(collector().mutex);
  collector().full.push_back({Buffer(buffer), valid_bytes});
}

std::uint64_t CUPTIAPI timestamp() { return static_cast<std::uint64_t>(now_ns()); }

void CUPTIAPI nothing(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

template <class Record>
ActivityRecord work_of(Activity kind, const CUpti_Activity* record, const char* name) {
  Record activity;
  std::memcpy(&activity, record, sizeof activity);
  return {kind,
          static_cast<std::int64_t>(activity.start),
          static_cast<std::int64_t>(activity.end),
          activity.deviceId,
          activity.streamId,
          activity.correlationId,
          name};
}

void add(const CUpti_Activity* record, ActivityRecords& records) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const char* const name = reinterpret_cast<const CUpti_ActivityKernel10*>(record)->name;
      records.work.push_back(
          work_of<CUpti_ActivityKernel10>(Activity::kernel, record, name ? name : ""));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      records.work.push_back(work_of<CUpti_ActivityMemcpy6>(Activity::copy, record, ""));
      return;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      records.work.push_back(work_of<CUpti_ActivityMemcpyPtoP4>(Activity::peer_copy, record, ""));
      return;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      records.work.push_back(work_of<CUpti_ActivityMemset4>(Activity::memset, record, ""));
      return;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      CUpti_ActivityExternalCorrelation link;
      std::memcpy(&link, record, sizeof link);
      if (link.externalKind == kOurs)
        records.links.push_back({link.correlationId, link.externalId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      CUpti_ActivitySynchronization2 wait;
      std::memcpy(&wait, record, sizeof wait);
      const bool of_stream = wait.type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
      records.host.push_back({of_stream ? HostActivity::stream_wait : HostActivity::wait,
                              static_cast<std::int64_t>(wait.start),
                              static_cast<std::int64_t>(wait.end)});
      return;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      CUpti_ActivityOverhead3 overhead;
      std::memcpy(&overhead, record, sizeof overhead);
      std::free(overhead.overheadData);  // handed over with the record
      records.host.push_back({HostActivity::overhead, static_cast<std::int64_t>(overhead.start),
                              static_cast<std::int64_t>(overhead.end)});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMORY2: {
      CUpti_ActivityMemory4 memory;
      std::memcpy(&memory, record, sizeof memory);
      if (memory.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION)
        records.allocations.push_back(
            {static_cast<std::int64_t>(memory.timestamp), static_cast<std::int64_t>(memory.bytes)});
      return;
    }
    default:
      ++records.other;
  }
}

void begin_instruction(int rank, int instruction) {
  cuptiActivityPushExternalCorrelationId(
      kOurs,
      external_id(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(instruction)));
}
void end_instruction() {
  std::uint64_t last = 0;
  cuptiActivityPopExternalCorrelationId(kOurs, &last);
}

// All that start_cupti() has done, as far as it came.
void undo() {
  set_instruction_hook({});
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
  if (collector().subscriber) cuptiUnsubscribe(collector().subscriber);
  collector().subscriber = nullptr;
  collector().on = false;
}

}  // namespace

void check_cupti() {
  std::uint32_t library = 0;
  check(cuptiGetVersion(&library), "cuptiGetVersion");
  // Records are laid out as the library's own header has them.
  require(library / 10000 == CUPTI_API_VERSION / 10000, "CUPTI ", library,
          " is loaded, and this program was built for ", CUPTI_API_VERSION,
          "; put the libcupti of the toolkit that it was built with first in LD_LIBRARY_PATH");
}

void start_cupti() {
  require(!collector().on, "CUPTI collects already");
  check_cupti();
  for (std::size_t k = collector().made; k < kAtFirst; ++k, ++collector().made)
    collector().free.push_back(make_buffer());
  check(cuptiSubscribe(&collector().subscriber, nothing, nullptr), "cuptiSubscribe");
  collector().on = true;
  try {
    // Before any kind, or times of devices would be brought onto another clock.
    check(cuptiActivityRegisterTimestampCallback(timestamp),
          "cuptiActivityRegisterTimestampCallback");
    check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
          "cuptiActivityRegisterCallbacks");
    std::uint8_t zeroed = 1;
    std::size_t bytes = sizeof zeroed;
    cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed);
    for (const CUpti_ActivityKind kind : kKinds)
      check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  } catch (...) {
    undo();
    throw;
  }
  set_instruction_hook({begin_instruction, end_instruction});
}

ActivityRecords stop_cupti() {
  require(collector().on, "CUPTI does not collect");
  set_instruction_hook({});
  // Kinds that are disabled first may lose what is under way.
  const CUptiResult flushed = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  ActivityRecords records;
  std::size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  records.dropped = static_cast<std::int64_t>(dropped);
  undo();
  check(flushed, "cuptiActivityFlushAll");
  std::vector<FullBuffer> full;
  {
    const std::lock_guard lock(collector().mutex);
    full.swap(collector().full);
  }
  for (FullBuffer& each : full) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(each.buffer.get(), each.bytes, &record) == CUPTI_SUCCESS)
      add(record, records);
    std::memset(each.buffer.get(), 0, kBufferBytes);
    const std::lock_guard lock(collector().mutex);
    collector().free.push_back(std::move(each.buffer));
  }
  return records;
}

}  // namespace mb
