// Where the ranks of a case run, and who of several processes reports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/case.h"
#include "bench/report/json.h"
#include "parallel/comm/comm.h"
#include "parallel/comm/mpi_world.h"
#include "parallel/device/cuda_device.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/shaped_world.h"
#include "workloads/base/error.h"

namespace mb {

// Of the processes that a launcher has started, rank 0 alone; a program by itself.
bool reports();
// Sends the stdout of a process that does not report nowhere.
void silence_unless_reporting();

// Throws Error unless the case fits what started this process: mode=mpi, cuda+mpi and nccl+mpi by
// mpirun or srun with a process for each rank, all else alone. `words` are those that follow
// "meshbench".
void check_launch(Mode mode, const Mesh& mesh, const std::string& words);
// Each host that MPI has started ranks on becomes a node.
void place_on_hosts(Mesh& mesh);

// A case of `verb` on the ranks that this process was started with. Throws Error where they do not
// fit. With mode=mpi, nodes are the hosts, unless the case places ranks itself.
template <class C>
C launched(C c, std::string_view verb) {
  check_launch(c.mode, c.mesh, cat(verb, ' ', to_text(c)));
  if (on_mpi(c.mode) && c.nodes.empty() && c.ranks_per_node == 0) place_on_hosts(c.mesh);
  return c;
}

// The ranks as threads, with the links of the case, or as the processes of MPI; with NCCL between
// their GPUs where the mode says so.
class CaseWorld {
 public:
  explicit CaseWorld(const Case& c) : CaseWorld(c.mode, c.mesh, c.link, c.timeout_s) {}
  CaseWorld(Mode mode, const Mesh& mesh, const std::optional<LinkShape>& link, double timeout_s);
  World& operator*() { return *world_; }

 private:
  std::optional<ThreadWorld> threads_;
  std::optional<ShapedWorld> shaped_;
  std::unique_ptr<World> nccl_;
  World* world_ = nullptr;
};

// What ranks of a mode run on: GPUs of their machine, round robin, or empty, CPUs. Throws Error
// where a mode is to have GPUs and there are none, or with NCCL fewer than ranks. The device of
// `options` is each rank's own.
DeviceMaker devices_of(Mode mode, const Mesh& mesh, const CudaOptions& options = {});
// As the case says.
CudaOptions cuda_options(const Case& c);

// The MPI world of this process; starts MPI where it has not been.
MpiWorld& mpi_world();
// "Open MPI, on 2 hosts: a (2), b (2)"
std::string mpi_text();
// What carried the messages, for other rows to be held against.
void add_mpi(Json& row, std::int64_t clock_uncertainty_ns);

// Tells an error once, names the rank where that matters, and ends the other processes. Returns the
// exit code.
int fail(const std::string& program, const std::string& message, int exit_code);
// At the end of a program that has not failed: waits for the other processes.
void finish_ranks();

}  // namespace mb
