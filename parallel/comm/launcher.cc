#include "parallel/comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "workloads/base/error.h"

namespace mb {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  require(error == std::errc() && stop == end && number >= 0, variable, "=", text,
          " in the environment is no number of a rank");
  return number;
}

std::optional<Launcher> started_by(const char* name, const char* mpi, const char* rank_variable,
                                   const char* size_variable) {
  const std::optional<int> rank = number_in(rank_variable), size = number_in(size_variable);
  if (!rank || !size) return std::nullopt;
  require(*rank < *size, rank_variable, "=", *rank, " and ", size_variable, "=", *size,
          " in the environment do not go together; start again by mpirun or srun");
  return Launcher{name, mpi, *rank, *size};
}

// Slurm's own words for whether a step speaks PMIx, as Open MPI does, or PMI, as MPICH does.
const char* mpi_of_step() {
  if (std::getenv("PMIX_RANK")) return "openmpi";
  if (std::getenv("PMI_RANK")) return "mpich";
  return "";
}

}  // namespace

std::optional<Launcher> launcher() {
  if (auto found = started_by("mpirun of Open MPI", "openmpi", "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE"))
    return found;
  // Hydra, which may itself have been started by srun.
  if (std::getenv("MPI_LOCALNRANKS")) {
    if (auto found = started_by("mpirun of MPICH", "mpich", "PMI_RANK", "PMI_SIZE")) return found;
  }
  // Set in a job step only, not in the batch script around it.
  if (auto found = started_by("srun", mpi_of_step(), "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
    return found;
  return started_by("a PMI launcher", "mpich", "PMI_RANK", "PMI_SIZE");
}

}  // namespace mb
