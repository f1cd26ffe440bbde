// Files that a verb is to write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mb {

struct OutputFlag {
  std::string_view flag;
  std::string path;  // empty: not given
};
// Output has to have a place before anything runs, each its own: makes folders that are missing.
// Only `stdout_flag` may be "-". Throws Exit or Error.
void check_outputs(const std::vector<OutputFlag>& outputs, std::string_view stdout_flag);

}  // namespace mb
