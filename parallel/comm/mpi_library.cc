#include "parallel/comm/mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <vector>

#include "parallel/comm/launcher.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall =
    "install libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich, then configure and build "
    "again";

std::vector<std::string> built() {
  std::istringstream names(MB_MPIS);
  return {std::istream_iterator<std::string>(names), {}};
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string chosen() {
  const std::vector<std::string> all = built();
  const std::optional<Launcher> by = launcher();
  require(!all.empty(), "mode=mpi: this build has found no MPI; ", kInstall);
  const char* wish = std::getenv("MESHBENCH_MPI");
  if (wish) {
    require(has(all, wish), "MESHBENCH_MPI=", wish, ": this build has ", MB_MPIS,
            "; give one of them, or ", kInstall);
    // A vendor's, by its own compiler wrapper, answers to any launcher.
    const bool any = std::string_view(wish) == "mpi";
    require(!by || by->mpi.empty() || by->mpi == wish || any, "MESHBENCH_MPI=", wish,
            ": started by ", by ? by->name : "", ", under which ", wish,
            " would see one rank in each process; start it by the mpirun of ", wish);
    return wish;
  }
  if (!by) return all.front();
  if (by->mpi.empty()) {
    require(all.size() == 1, "started by ", by->name, ", which does not say for which MPI; set ",
            "MESHBENCH_MPI to one of: ", MB_MPIS,
            " (or give srun --mpi=pmix for Open MPI, "
            "--mpi=pmi2 for MPICH)");
    return all.front();
  }
  // A build by another MPI's compiler wrapper, such as a vendor's, is the only one that there is.
  if (all.size() == 1 && all.front() == "mpi") return all.front();
  require(has(all, by->mpi), "started by ", by->name, ", and this build has only ", MB_MPIS,
          ", which would see one rank in each process; start it by the mpirun of ", all.front(),
          ", or ", kInstall);
  return by->mpi;
}

// Beside the folder of the program, so that a build may be moved, else where it was built.
fs::path module_of(const std::string& name) {
  const fs::path file = "libmb_mpi_" + name + ".so";
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = program.parent_path().parent_path() / "mpi" / file;
  if (!error && fs::exists(beside, error)) return beside;
  return fs::path(MB_MPI_DIR) / file;
}

}  // namespace

std::string built_mpis() { return MB_MPIS; }

const MpiFunctions& load_mpi() {
  const fs::path path = module_of(chosen());
  // Global: Open MPI's own modules look for its symbols there.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  require(module, "cannot load ", path.string(), ": ", dlerror(), "; ", kInstall);
  using Table = const MpiFunctions* (*)();
  const auto table = reinterpret_cast<Table>(dlsym(module, "mb_mpi_functions"));
  require(table, path.string(), " is no MPI module of this build; build again");
  return *table();
}

}  // namespace mb
