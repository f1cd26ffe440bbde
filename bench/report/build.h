// What this program was built from.
#pragma once

#include <optional>
#include <string>

namespace mb {

struct BuildInfo {
  std::string version;
  std::optional<std::string> commit;  // nullopt outside a git checkout
  std::optional<bool> dirty;          // tracked files differ from the commit
  std::string type, flags, compiler;  // "Release", "-O3 -DNDEBUG", "GNU 12.2.0"
};
BuildInfo build_info();

// For --version: version, commit, build type, compiler, libraries.
std::string build_text();

}  // namespace mb
