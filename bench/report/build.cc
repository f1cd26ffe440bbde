#include "bench/report/build.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "git_version.h"

namespace mb {

BuildInfo build_info() {
  BuildInfo info{.version = MB_VERSION,
                 .type = MB_BUILD_TYPE,
                 .flags = MB_BUILD_FLAGS,
                 .compiler = MB_COMPILER};
  if (std::string_view(MB_GIT_COMMIT) != "") info.commit = MB_GIT_COMMIT;
  if (MB_GIT_DIRTY >= 0) info.dirty = MB_GIT_DIRTY == 1;
  return info;
}

std::string build_text() {
  const BuildInfo info = build_info();
  return fmt::format("meshbench {} ({}{}), {}, {}, fmt {}.{}.{}, nlohmann-json {}.{}.{}",
                     info.version, info.commit ? info.commit->substr(0, 12) : "no commit",
                     info.dirty.value_or(false) ? ", changed" : "", info.type, info.compiler,
                     FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100,
                     NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace mb
