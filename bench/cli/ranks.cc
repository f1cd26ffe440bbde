#include "bench/cli/ranks.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "bench/cli/exit.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/mpi_library.h"
#include "parallel/comm/nccl_world.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::unique_ptr<MpiWorld> started;

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

bool reports() {
  try {
    const std::optional<Launcher> by = launcher();
    return !by || by->rank == 0;
  } catch (const Error&) {  // an environment that contradicts itself: check_launch tells
    return true;
  }
}

void silence_unless_reporting() {
  if (!reports() && !std::freopen("/dev/null", "w", stdout)) std::fclose(stdout);
}

void check_launch(Mode mode, const Mesh& mesh, const std::string& words) {
  const std::string command = cat("mpirun -n ", mesh.world(), " meshbench ", words);
  const std::optional<Launcher> by = launcher();
  const int world = mesh.world();
  if (!on_mpi(mode)) {
    require(!by || by->size == 1, "started ", by ? by->size : 1, " times by ", by ? by->name : "",
            ", and mode=", name_of(mode), " runs all ranks in one process; give mode=",
            on_nccl(mode)   ? "nccl+mpi"
            : on_cuda(mode) ? "cuda+mpi"
                            : "mpi",
            ", or start it once, without ", by ? by->name : "");
    return;
  }
  require(by || world == 1, "mode=", name_of(mode), ": mesh=", mesh.to_text(), " wants ", world,
          " processes, and this one was started alone; start them with: ", command);
  require(!by || by->size == world, "mesh=", mesh.to_text(), " has ", world, " ranks, and ",
          by ? by->name : "", " has started ", by ? by->size : 1, "; start as many: ", command);
}

void place_on_hosts(Mesh& mesh) {
  std::map<std::string, int> nodes;
  std::vector<int> node_of_rank;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int next = static_cast<int>(nodes.size());
    node_of_rank.push_back(nodes.emplace(mpi_world().host_of(rank), next).first->second);
  }
  mesh.set_nodes(std::move(node_of_rank));
}

CaseWorld::CaseWorld(Mode mode, const Mesh& mesh, const std::optional<LinkShape>& link,
                     double timeout_s) {
  if (on_mpi(mode)) {
    world_ = &mpi_world();
  } else {
    threads_.emplace(mesh.world());
    world_ = &*threads_;
  }
  if (link) {
    shaped_.emplace(*threads_, *link, mesh.nodes_of(threads_->local_ranks()));
    world_ = &*shaped_;
  }
  if (on_nccl(mode)) {
    nccl_ = make_nccl_world(*world_, {.timeout_s = timeout_s});
    world_ = nccl_.get();
  }
}

CudaOptions cuda_options(const Case& c) {
  return {.tf32 = c.tf32, .fused_attention = c.fused_attention, .graph = c.graph};
}

DeviceMaker devices_of(Mode mode, const Mesh& mesh, const CudaOptions& options) {
  if (!on_cuda(mode)) return {};
  // Of the first ranks, how many are on the machine of `rank`.
  const auto neighbours = [mode](int first, int rank) {
    if (!on_mpi(mode)) return first;
    int count = 0;
    for (int other = 0; other < first; ++other)
      count += mpi_world().machine_of(other) == mpi_world().machine_of(rank);
    return count;
  };
  const int devices = cuda_devices();
  const int here = neighbours(mesh.world(), on_mpi(mode) ? mpi_world().rank() : 0);
  require(!on_nccl(mode) || here <= devices, "mesh=", mesh.to_text(), " has ", here,
          " ranks on this machine, and NCCL wants a GPU for each; the driver shows ", devices,
          ". Give a smaller mesh, or mode=", on_mpi(mode) ? "cuda+mpi" : "cuda+threads",
          ", whose ranks share GPUs");
  return [=](int rank) {
    CudaOptions own = options;
    own.device = neighbours(rank, rank) % devices;
    return make_cuda_device(own, kStreams, cat("g", rank));
  };
}

MpiWorld& mpi_world() {
  if (!started) started = std::make_unique<MpiWorld>();
  return *started;
}

std::string mpi_text() {
  const std::vector<MpiWorld::Host> hosts = mpi_world().hosts();
  std::string text = cat(mpi_world().library(), ", ",
                         hosts.size() == 1 ? "on one host" : cat("on ", hosts.size(), " hosts: "));
  if (hosts.size() == 1) return text;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    text += cat(i ? ", " : "", hosts[i].name, " (", hosts[i].ranks, ")");
  return text;
}

void add_mpi(Json& row, std::int64_t clock_uncertainty_ns) {
  const MpiWorld& world = mpi_world();
  Json hosts = Json::array();
  for (const MpiWorld::Host& host : world.hosts())
    hosts.push_back({{"name", host.name}, {"ranks", host.ranks}});
  row["fingerprint"]["soft"]["mpi_library"] = world.library_version();
  row["mpi"] = {{"library", world.library()},
                {"version", world.library_version()},
                {"hosts", std::move(hosts)},
                {"clock_uncertainty_ns", clock_uncertainty_ns}};
}

int fail(const std::string& program, const std::string& message, int exit_code) {
  using namespace std::chrono_literals;
  const bool speaks = reports();
  std::fflush(stdout);
  if (started) {
    // What has gone wrong on all is told by rank 0.
    if (!speaks) std::this_thread::sleep_for(300ms);
    const int rank = started->rank();
    started->abort(
        speaks ? message : cat("rank ", rank, " on ", started->host_of(rank), ": ", message),
        exit_code);
  }
  if (speaks) {
    fmt::print(stderr, "{}: {}\n", program, message);
  } else if (exit_code == kExitUsage) {
    std::this_thread::sleep_for(1s);  // rank 0 says the same, unless a launcher ends it first
  } else {
    fmt::print(stderr, "{}: rank {} on {}: {}\n", program, launcher()->rank, host_name(), message);
  }
  return exit_code;
}

void finish_ranks() { started.reset(); }

}  // namespace mb
