#include "parallel/comm/nccl_world.h"

namespace mb {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "this build has no NCCL; install libnccl-dev, then configure with -DMB_CUDA=ON -DMB_NCCL=ON "
      "and build again");
}

}  // namespace

NcclVersions nccl_versions() { refuse(); }
std::unique_ptr<World> make_nccl_world(World&, const NcclOptions&) { refuse(); }

}  // namespace mb
