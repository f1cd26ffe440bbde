// Ranks on GPUs, one GPU each, whose Comms are NCCL communicators on the streams of their devices.
// nccl_world.cc has them, no_nccl.cc is what a build without NCCL has.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/comm.h"

namespace mb {

struct NcclOptions {
  double timeout_s = 60;  // for all ranks to come together
};

// Of the library and of the header that this program was built with: "2.28.9".
struct NcclVersions {
  std::string library, header;
};
// Throws Error where this build has no NCCL, or where the library that is loaded is of another
// major version or older than the header: its structures are then not those that this program
// passes.
NcclVersions nccl_versions();

// `hosts` carries what processes and host memory exchange, and bootstraps NCCL; it must outlive the
// World. Before the first comm_on(), all ranks announce() their groups; each becomes a part of one
// communicator of all ranks (ncclCommSplit). Results are those of comm() up to the order of
// additions, and in 16 bits their rounding. What members call differently is not told: NCCL checks
// neither counts nor types, and the call hangs until the World aborts.
//
// Kernels of one communicator run one after the other whatever streams they are on, so a Comm is
// for one stream. Kernels of different communicators run at once as long as the GPU has room for
// them; waits that the Plan orders by its events alone may hold one another up where it has not.
//
// A thread asks every communicator for errors that came up after its calls (ncclCommGetAsyncError)
// and aborts the World for them; abort() ends kernels that wait for other ranks (ncclCommAbort).
std::unique_ptr<World> make_nccl_world(World& hosts, const NcclOptions& options = {});

}  // namespace mb
