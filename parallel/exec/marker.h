// Ranges around instructions for a profiler that watches this process, such as Nsight Systems.
//
// nvtx_marker.cc sends them to NVTX, in the domain "meshbench"; no_marker.cc drops them. Ranges
// nest per thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace mb {

struct MarkerInfo {
  std::string_view message;   // what runs, e.g. "F m3 l5 mlp.up"; kept once per distinct text
  std::string_view category;  // its pass, e.g. "forward"; a profiler filters by it
  // -1: none. Tools that know NVTX's payload extension get these as fields; others one number, the
  // bytes of what carries some and else the micro-batch.
  std::int64_t micro_batch = -1, layer = -1;
  std::int64_t bytes = 0;  // carried by communication and copies
};

// Whether this program was built with NVTX.
bool nvtx_available();

// Whether a tool was attached when a marker was first asked for. Where this is false there is no
// need to build a message: push and pop do nothing.
bool markers_active();

void marker_push(const MarkerInfo& info);
void marker_pop();

// Who else is told, on the thread that runs or enqueues an instruction, when it begins and ends: a
// tracer that links what the instruction launches to it. Empty: nobody.
struct InstructionHook {
  void (*begin)(int rank, int instruction) = nullptr;
  void (*end)() = nullptr;
};
// Between steps only.
void set_instruction_hook(const InstructionHook& hook);
const InstructionHook& instruction_hook();

}  // namespace mb
