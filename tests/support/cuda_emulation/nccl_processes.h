// Emulated communicators over the processes of a launcher: what members have for each other goes by
// files, as their memory is not shared. A test double; see emulation.h.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "tests/support/cuda_emulation/nccl_state.h"

namespace mb::cuda_emulation {

// Whether a launcher has started several processes, of which each has one member of a communicator.
bool spans_processes();

// Tells the others that this member has come, and what it wants of a split.
void post_member(const NcclClique& clique, int member, int device);
void post_part(const NcclClique& clique, std::int64_t ordinal, int member,
               const NcclSplit::Part& part);
// Notes who else has come, and the parts of a split that are known. Whether all are.
bool find_members(NcclClique& clique);
bool find_parts(const NcclClique& clique, std::int64_t ordinal, NcclSplit& split);

// Does the collective, or all messages of the kernel, with the other processes. Returns what does
// not fit; nothing if all went well or the kernel was given up. The lock is held, and let go while
// it waits.
std::string meet_processes(const NcclKernel& kernel, const NcclOperation& operation,
                           std::unique_lock<std::mutex>& lock);

}  // namespace mb::cuda_emulation
