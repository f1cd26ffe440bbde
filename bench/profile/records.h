// Activity records of a device tracer as plain data, and their join: correlation id -> external id
// -> instruction. Names of kernels are kept for people and never decide anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/analysis/intervals.h"

namespace mb {

enum class Activity : std::uint8_t { kernel, copy, peer_copy, memset };

// Work on a device. Times are on one clock; a tracer out of device buffers reports zeros.
struct ActivityRecord {
  Activity kind = Activity::kernel;
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t device = 0, stream = 0;
  std::uint32_t correlation = 0;
  std::string name;
};

// Says that the launch `correlation` was made inside the instruction `external`.
struct ExternalRecord {
  std::uint32_t correlation = 0;
  std::uint64_t external = 0;
};

// A span of the host: it waited for a device, or a stream was told to wait for an event, which
// takes it no time; or the tracer itself took it.
enum class HostActivity : std::uint8_t { wait, stream_wait, overhead };
struct HostRecord {
  HostActivity kind = HostActivity::wait;
  std::int64_t start_ns = 0, end_ns = 0;
};

// Memory that the driver gave: what an arena is made of, not the tensors in it.
struct AllocationRecord {
  std::int64_t at_ns = 0, bytes = 0;
};

// Every buffer of one process, in any order. Correlation ids restart with each process.
struct ActivityRecords {
  std::vector<ActivityRecord> work;
  std::vector<ExternalRecord> links;
  std::vector<HostRecord> host;
  std::vector<AllocationRecord> allocations;
  std::int64_t dropped = 0;  // as the tracer counts those that it never delivered
  std::int64_t other = 0;    // of kinds that nothing here reads, launches of the host among them
};

// An instruction and its rank in the 64 bits that a tracer carries.
std::uint64_t external_id(std::uint32_t rank, std::uint32_t instruction);

struct InstructionActivity {
  std::uint32_t rank = 0, instruction = 0;
  Span extent;                    // from the first begin to the last end, gaps included
  Intervals busy;                 // the union of its work
  std::vector<std::size_t> work;  // indices into ActivityRecords::work, by begin
};

// What became of each work record: exactly one of these but `dropped`, which never came.
struct TraceQuality {
  std::int64_t placed = 0;
  std::int64_t dropped = 0;
  std::int64_t without_time = 0;   // begin or end is zero, or the end comes first
  std::int64_t out_of_window = 0;  // not wholly inside the window
  std::int64_t uncorrelated = 0;   // no link, or links that contradict each other
};

struct ActivityTimeline {
  std::map<std::uint64_t, InstructionActivity> instructions;  // by external_id
  TraceQuality quality;
};

// What the host did meanwhile. Spans are clipped to the window; those of several threads that
// overlap count once.
struct HostTime {
  std::int64_t waits = 0, waiting_ns = 0;       // for devices
  std::int64_t stream_waits = 0;                // edges between streams
  std::int64_t overheads = 0, overhead_ns = 0;  // of the tracer
  std::int64_t allocations = 0, allocated_bytes = 0;
  std::int64_t without_time = 0, out_of_window = 0;  // of all these records
};
HostTime host_time(const ActivityRecords& records, Span window);

// What each instruction had the devices do, of work that lies wholly inside `window`.
ActivityTimeline join(const ActivityRecords& records, Span window);

}  // namespace mb
