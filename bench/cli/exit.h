// How the command ends.
#pragma once

#include <stdexcept>
#include <string>

namespace mb {

// Exit codes, the same for every verb; 1 is an answer of no: a node that is not fit, a gate's
// regression.
inline constexpr int kExitOk = 0, kExitWouldFail = 1, kExitUsage = 2, kExitNoVerdict = 3,
                     kExitNoData = 4, kExitOutOfMemory = 66, kExitInternal = 70,
                     kExitInterrupted = 130;

// A message for stderr with the exit code that goes with it. An Error that leaves a verb is a usage
// error.
class Exit : public std::runtime_error {
 public:
  Exit(int code, const std::string& message) : std::runtime_error(message), code(code) {}
  int code;
};

}  // namespace mb
