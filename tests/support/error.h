// The message of an Error, for tests that a user's mistake is told well.
#pragma once

#include <string>

#include "workloads/base/error.h"

namespace mb {

// What `call` throws as an Error; "no Error" if it returns.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace mb
