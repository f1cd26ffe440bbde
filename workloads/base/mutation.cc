#include "workloads/base/mutation.h"

#include <cstdlib>
#include <string_view>

namespace mb {

bool mutated(const char* fault) {
  static const char* const wanted = std::getenv("MB_MUTATION");
  return wanted && std::string_view(wanted) == fault;
}

}  // namespace mb
