#include "bench/cli/outputs.h"

#include <unistd.h>

#include <filesystem>

#include "bench/cli/exit.h"
#include "workloads/base/error.h"

namespace mb {

void check_outputs(const std::vector<OutputFlag>& outputs, std::string_view stdout_flag) {
  for (const auto& [flag, path] : outputs) {
    if (path.empty() || (path == "-" && flag == stdout_flag)) continue;
    require(path != "-", flag, " -: only the rows of ", stdout_flag, " go to stdout; give a file");
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error || std::filesystem::is_directory(path) || access(folder.c_str(), W_OK) != 0) {
      throw Exit(kExitNoData,
                 cat(flag, " ", path,
                     ": cannot write there; give a file in a folder that can be written"));
    }
    for (const auto& [other_flag, other] : outputs) {
      const bool same = !other.empty() && std::filesystem::weakly_canonical(path) ==
                                              std::filesystem::weakly_canonical(other);
      require(flag == other_flag || !same, flag, " and ", other_flag, " are both ", path,
              "; give each a file of its own");
    }
  }
}

}  // namespace mb
