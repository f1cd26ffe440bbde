// The MPI functions that are used, as a table. mpi_shim.cc fills it in, compiled once for each MPI
// that the build has found, into a module that is loaded when ranks are asked for as MPI processes:
// one program serves several MPIs and links none.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/collective.h"
#include "workloads/base/dtype.h"

namespace mb {

// A communicator or a request, whatever the library takes for one.
using MpiHandle = std::uintptr_t;

// All return 0 or an error code of the library. Counts are of elements unless they say bytes;
// one call of the library takes at most `limit` elements, and larger ones go by derived types or in
// pieces.
struct MpiFunctions {
  const char* name;  // "Open MPI", "MPICH"
  void (*version)(char* text, int bytes);
  void (*error_text)(int code, char* text, int bytes);
  // With calls from any thread, which `any_thread` says the library allows.
  int (*start)(bool* any_thread, int* rank, int* size);
  int (*finish)();
  void (*abort)(int exit_code);

  // Of ranks of the world; called by all of them.
  int (*make_group)(const int* ranks, int count, int tag, MpiHandle* group);
  int (*free_group)(MpiHandle* group);

  // At most 2^31 - 1 bytes.
  int (*isend)(const void* data, std::int64_t bytes, int to, int tag, MpiHandle group,
               MpiHandle* request);
  int (*irecv)(void* data, std::int64_t bytes, int from, int tag, MpiHandle group,
               MpiHandle* request);
  int (*test_all)(MpiHandle* requests, int count, bool* done);
  // Whether a message of `tag` is there, from whom and how long.
  int (*probe)(int tag, MpiHandle group, bool* there, int* from, int* bytes);

  // The library's own collectives, in place as Comm says, but for reduce and reduce_scatter,
  // whose buffers are apart; without ReduceOp::avg. 16-bit types by user-defined operations.
  int (*all_reduce)(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
                    MpiHandle group, std::int64_t limit);
  int (*reduce)(const void* from, void* to, std::int64_t count, DType type, ReduceOp op, int root,
                MpiHandle group, std::int64_t limit);
  int (*all_gather)(const void* from, void* to, std::int64_t count_each, DType type,
                    MpiHandle group, std::int64_t limit);
  int (*reduce_scatter)(const void* from, void* to, std::int64_t count_each, DType type,
                        ReduceOp op, MpiHandle group, std::int64_t limit);
  int (*all_to_all)(const void* from, void* to, std::int64_t count_each, DType type,
                    MpiHandle group, std::int64_t limit);
  int (*all_to_all_v)(const void* from, const std::int64_t* send_counts, void* to,
                      const std::int64_t* recv_counts, DType type, MpiHandle group,
                      std::int64_t limit);
  int (*send_recv)(const void* from, int dest, void* to, int source, std::int64_t count, DType type,
                   MpiHandle group, std::int64_t limit);
  int (*broadcast)(void* data, std::int64_t count, DType type, int root, MpiHandle group,
                   std::int64_t limit);
  int (*gather)(const void* from, void* to, std::int64_t count_each, DType type, int root,
                MpiHandle group, std::int64_t limit);
  int (*scatter)(const void* from, void* to, std::int64_t count_each, DType type, int root,
                 MpiHandle group, std::int64_t limit);
  int (*barrier)(MpiHandle group);
};

// The library that the launcher's environment asks for, or MESHBENCH_MPI=openmpi|mpich. Throws
// Error that says what to install, if the build has no such MPI, or what to start instead.
const MpiFunctions& load_mpi();

// "openmpi mpich": what the build has found.
std::string built_mpis();

}  // namespace mb
