// Who started this process beside others: mpirun or srun, by the environment that they leave.
#pragma once

#include <optional>
#include <string>

namespace mb {

struct Launcher {
  std::string name;  // "mpirun of Open MPI", "mpirun of MPICH", "srun"
  std::string mpi;   // whose library it starts: "openmpi" or "mpich"; "" where either may be
  int rank = 0, size = 1;
};

// nullopt if nothing in the environment speaks of one. Throws Error where it contradicts itself.
std::optional<Launcher> launcher();

}  // namespace mb
