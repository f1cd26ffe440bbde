#include "bench/report/output.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "workloads/base/error.h"

namespace mb {

void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path target = fs::weakly_canonical(path, ignored);
  const std::string place = target.empty() ? path : target.string();
  const bool in_place = fs::exists(place, ignored) && !fs::is_regular_file(place, ignored);
  const std::string written = in_place ? path : cat(place, ".tmp.", getpid());
  std::ofstream out(written, std::ios::binary);
  require(out.good(), "cannot write ", path, "; does its folder exist?");
  write(out);
  out.close();
  const bool done = out.good() && (in_place || std::rename(written.c_str(), place.c_str()) == 0);
  if (!done && !in_place) std::remove(written.c_str());
  require(done, "cannot write all of ", path, "; is the disk full?");
}

}  // namespace mb
