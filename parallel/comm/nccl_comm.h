// A Comm whose calls enqueue NCCL's on one CUDA stream.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/comm.h"
#include "parallel/comm/nccl_communicator.h"

namespace mb {

// What NCCL has no call for is a group of sends and receives; parts of no elements are left out.
// barrier() holds back what follows on the stream until all members' streams have come to it.
std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<NcclCommunicator> communicator,
                                     const NativeStream& stream, std::string name, int index,
                                     int size);

}  // namespace mb
